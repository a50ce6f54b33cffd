package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is one that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// faults stand between a log and its files.
type faults struct {
	mu sync.Mutex
	// write, sync and truncate are asked before the file is; half writes half of
	// what failed.
	write, sync, truncate, open func() error
	half                        bool
	// mend ends what a fault has begun.
	mend func()
	// synced gets what is durable.
	synced func([]byte)
}

func (f *faults) set(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faults) ask(which func(*faults) func() error) error {
	f.mu.Lock()
	ask := which(f)
	f.mu.Unlock()
	if ask == nil {
		return nil
	}
	return ask()
}

func (f *faults) halves() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.half
}

func (f *faults) Open(path string, fresh bool) (audit.File, error) {
	if err := f.ask(func(f *faults) func() error { return f.open }); err != nil {
		return nil, err
	}
	file, err := audit.OpenFile(path, fresh)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	return &faultyFile{File: file, f: f, durable: info.Size()}, err
}

// faultyFile knows what of it is durable: so many bytes, and what was written behind
// them is not.
type faultyFile struct {
	audit.File
	f *faults

	mu      sync.Mutex
	durable int64
	written []byte
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.f.ask(func(f *faults) func() error { return f.write }); err != nil {
		n := 0
		if f.f.halves() {
			n, _ = f.File.Write(p[:len(p)/2])
		}
		return n, err
	}
	n, err := f.File.Write(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = append(f.written, p[:n]...)
	return n, err
}

func (f *faultyFile) Sync() error {
	f.mu.Lock()
	n := len(f.written) // what comes meanwhile waits for the next
	f.mu.Unlock()
	if err := f.f.ask(func(f *faults) func() error { return f.sync }); err != nil {
		return err
	}
	if err := f.File.Sync(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f.synced != nil {
		f.f.synced(f.written[:n])
	}
	f.durable, f.written = f.durable+int64(n), f.written[n:]
	return nil
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.f.ask(func(f *faults) func() error { return f.truncate }); err != nil {
		return err
	}
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.durable = min(f.durable, size)
	f.written = f.written[:min(int64(len(f.written)), size-f.durable)]
	return nil
}

// open opens a log that is closed at the end of the test.
func open(t testing.TB, o audit.Options) *audit.Log {
	t.Helper()
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	log, err := audit.Open(o)
	assert.NilError(t, err)
	t.Cleanup(sync.OnceFunc(func() { shut(t, log) }))
	return log
}

// shut closes a log, again if need be.
func shut(t testing.TB, log *audit.Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	_ = log.Close(ctx) // of a second time nothing is left to close
}

func effect(operation string) audit.Effect {
	return audit.Effect{Operation: operation, Tenant: "acme", Provider: "p", Code: "print(1)", CodeHash: "sha256:00"}
}

// line is what tests read.
type line struct {
	Seq       uint64   `json:"seq"`
	Event     string   `json:"event"`
	EffectID  string   `json:"effect_id"`
	Operation string   `json:"operation"`
	Status    string   `json:"status"`
	Note      string   `json:"note"`
	Code      string   `json:"code"`
	Program   string   `json:"program"`
	Timestamp string   `json:"timestamp"`
	Late      bool     `json:"late"`
	Open      []string `json:"open"`
	File      string   `json:"file"`
}

// linesOf reads all lines that a directory holds, in order.
func linesOf(t testing.TB, dir string) (lines []line) {
	t.Helper()
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	for _, s := range segments {
		lines = append(lines, linesIn(t, s)...)
	}
	return lines
}

func linesIn(t testing.TB, s audit.Segment) (lines []line) {
	t.Helper()
	r, err := audit.OpenReader(s.Path, s.Compressed)
	assert.NilError(t, err)
	defer r.Close()
	for {
		text, err := r.Next()
		if err != nil {
			return lines
		}
		var l line
		assert.NilError(t, json.Unmarshal(text, &l))
		lines = append(lines, l)
	}
}

// intact verifies a directory.
func intact(t testing.TB, dir string) audit.Report {
	t.Helper()
	report, err := audit.Verify([]string{dir}, nil)
	assert.NilError(t, err)
	assert.Assert(t, report.OK, "%+v", report.Problem)
	return report
}

// edit changes a file.
func edit(t testing.TB, path string, change func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(path, change(text), 0o600))
}

// only returns the one file of a log.
func only(t testing.TB, dir string) string {
	t.Helper()
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	assert.Assert(t, len(segments) == 1, "%v", segments)
	return segments[0].Path
}

func newDir(t testing.TB) string { return filepath.Join(scratch.Dir(t), "audit") }

func countLines(text []byte) int { return bytes.Count(text, []byte("\n")) }
