package heads_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/heads"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// order is the database, in memory.
type order struct {
	mu   sync.Mutex
	list []audit.Head
}

// seat is one broker's access to it.
type seat struct {
	*order
	broker string
}

func (s seat) SignHead(_ context.Context, seq uint64, hash string) (audit.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := audit.Head{Number: uint64(len(s.list) + 1), Broker: s.broker, Seq: seq, Hash: hash, Prev: strings.Repeat("0", 64)}
	if len(s.list) > 0 {
		h.Prev = s.list[len(s.list)-1].Sum()
	}
	s.list = append(s.list, h)
	return h, nil
}

func (s seat) LastHead(context.Context) (number uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.list {
		if h.Broker == s.broker {
			number = h.Number
		}
	}
	return number, nil
}

func (s seat) Heads(_ context.Context, behind uint64, most int) ([]audit.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[behind:min(uint64(len(s.list)), behind+uint64(most))], nil //nolint:gosec // it is small
}

func (o *order) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list)
}

// broker is one with a log, which it signs.
type broker struct {
	id, dir string
	log     *audit.Log
	end     context.CancelFunc
	done    chan struct{}
}

func start(t *testing.T, o *order, id, dir string) *broker {
	t.Helper()
	log, err := audit.Open(audit.Options{Dir: dir, Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	ctx, end := context.WithCancel(t.Context())
	b := &broker{id: id, dir: dir, log: log, end: end, done: make(chan struct{})}
	signer := heads.New(heads.Options{Log: log, Store: seat{o, id}, Broker: id, Logger: hclog.NewNullLogger(), Every: 5 * time.Millisecond})
	go func() {
		defer close(b.done)
		signer.Run(ctx)
	}()
	return b
}

// stop ends it in order.
func (b *broker) stop(t *testing.T) {
	t.Helper()
	b.end()
	<-b.done
	assert.NilError(t, b.log.Close(context.WithoutCancel(t.Context())))
}

func (b *broker) act(t *testing.T, operation string) {
	t.Helper()
	r, err := b.log.Begin(t.Context(), audit.Effect{Operation: operation, Tenant: "acme"})
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
}

// threeLogs are of brokers that have noted what the others did.
func threeLogs(t *testing.T) (dirs []string, o *order) {
	t.Helper()
	o = &order{}
	var all []*broker
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, start(t, o, id, filepath.Join(t.TempDir(), "audit")))
	}
	for range 5 {
		for _, b := range all {
			before := o.len()
			b.act(t, "create_instance")
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if o.len() == before {
					return poll.Continue("it is not signed yet")
				}
				return poll.Success()
			}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
		}
	}
	for _, b := range all {
		b.stop(t)
		dirs = append(dirs, b.dir)
	}
	return dirs, o
}

func lines(t *testing.T, dir string) (path string, all [][]byte) {
	t.Helper()
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	assert.Equal(t, len(segments), 1)
	text, err := os.ReadFile(segments[0].Path)
	assert.NilError(t, err)
	return segments[0].Path, bytes.SplitAfter(text, []byte("\n"))
}

// chainAnew writes lines as whoever may write the files can: with hashes that fit.
func chainAnew(t *testing.T, path string, all [][]byte) {
	t.Helper()
	var out []byte
	prev := strings.Repeat("0", 64)
	for n, line := range all {
		if len(line) == 0 {
			continue
		}
		content := line[bytes.Index(line, []byte(`"timestamp":`)):bytes.LastIndex(line, []byte(`,"hash":`))]
		sealed := fmt.Appendf(nil, `{"seq":%d,"prev":"%s",%s`, n+1, prev, content)
		prev = fmt.Sprintf("%x", sha256.Sum256(sealed))
		out = fmt.Appendf(out, "%s,\"hash\":\"%s\"}\n", sealed, prev)
	}
	assert.NilError(t, os.WriteFile(path, out, 0o600))
}

func TestLogsThatNobodyHasTouchedAgree(t *testing.T) {
	dirs, o := threeLogs(t)
	all, err := audit.VerifyTogether(dirs, o.list)
	assert.NilError(t, err)
	assert.Check(t, all.OK, "%+v", all)
	assert.Check(t, is.Equal(all.Heads, len(o.list)))
	assert.Check(t, is.Len(all.Absent, 0))
	for n, log := range all.Logs {
		assert.Check(t, is.Equal(log.Broker, string(rune('a'+n))))
	}
	some, err := audit.VerifyTogether(dirs[:2], nil)
	assert.NilError(t, err)
	assert.Check(t, some.OK, "%+v", some)
	assert.Check(t, is.DeepEqual(some.Absent, []string{"c"}))
}

// A broker that begins anew goes on in the order, and what it does when nothing happens is
// nothing.
func TestAnOrderGoesOn(t *testing.T) {
	o := &order{}
	dirs := []string{filepath.Join(t.TempDir(), "audit"), filepath.Join(t.TempDir(), "audit")}
	for range 3 {
		a, b := start(t, o, "a", dirs[0]), start(t, o, "b", dirs[1])
		a.act(t, "create_instance")
		a.stop(t)
		b.act(t, "create_instance")
		b.stop(t)
	}
	all, err := audit.VerifyTogether(dirs, o.list)
	assert.NilError(t, err)
	assert.Check(t, all.OK, "%+v", all)

	a := start(t, o, "a", dirs[0])
	defer a.stop(t)
	count := func() uint64 { seq, _ := a.log.Position(); return seq }
	var still uint64
	same := 0
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now := count(); now != still {
			still, same = now, 0
		}
		if same++; same < 20 { // rounds of the signer and more
			return poll.Continue("the log still grows")
		}
		return poll.Success()
	}, poll.WithDelay(10*time.Millisecond), poll.WithTimeout(2*time.Minute))
}

func TestALogThatWasChangedBehindItsHeadIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, path string, all [][]byte)
		fault  audit.Fault
		wants  string
	}{
		"cut off at its end": {func(t *testing.T, path string, all [][]byte) {
			t.Helper()
			assert.NilError(t, os.WriteFile(path, bytes.Join(all[:len(all)/2], nil), 0o600))
		}, audit.FaultMissing, "it ends with number"},
		"cut off before anything of the order": {func(t *testing.T, path string, all [][]byte) {
			t.Helper()
			assert.NilError(t, os.WriteFile(path, bytes.Join(all[:2], nil), 0o600))
		}, audit.FaultMissing, "it does not say of which broker it is"},
		"written anew with another line": {func(t *testing.T, path string, all [][]byte) {
			t.Helper()
			first := slices.IndexFunc(all, func(line []byte) bool { return bytes.Contains(line, []byte("acme")) })
			all[first] = bytes.Replace(all[first], []byte("acme"), []byte("evil"), 1)
			chainAnew(t, path, all)
		}, audit.FaultChanged, "it was written anew"},
		"written anew in another order": {func(t *testing.T, path string, all [][]byte) {
			t.Helper()
			first := slices.IndexFunc(all, func(line []byte) bool { return bytes.Contains(line, []byte("acme")) })
			all[first-1], all[first] = all[first], all[first-1] // the line about the file
			chainAnew(t, path, all)
		}, audit.FaultChanged, "it was written anew"},
		"written anew with other heads": {func(t *testing.T, path string, all [][]byte) {
			t.Helper()
			for n, line := range all {
				all[n] = bytes.Replace(line, []byte(`"broker":"c","seq":`), []byte(`"broker":"c","seq":9`), 1)
			}
			chainAnew(t, path, all)
		}, audit.FaultReordered, "it has another head"},
	} {
		t.Run(name, func(t *testing.T) {
			dirs, o := threeLogs(t)
			path, all := lines(t, dirs[0])
			c.change(t, path, all)
			alone, err := audit.Verify(dirs[:1], nil)
			assert.NilError(t, err)
			if c.fault != audit.FaultMissing {
				assert.Check(t, alone.OK, "by itself nothing shows: %+v", alone)
			}
			check := func(kept []audit.Head, dirs []string) {
				t.Helper()
				found, err := audit.VerifyTogether(dirs, kept)
				assert.NilError(t, err)
				assert.Assert(t, !found.OK)
				if alone.OK {
					assert.Check(t, is.Equal(found.Problem.Fault, c.fault), "%+v", found.Problem)
					assert.Check(t, is.Contains(found.Problem.Detail, c.wants))
				}
			}
			check(nil, dirs)
			check(o.list, dirs[:1])
			check(o.list, dirs)
		})
	}
}
