package audit_test

import (
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

func TestAnEffectHasTwoLines(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir})
	r, err := log.Begin(t.Context(), effect("execute"))
	assert.NilError(t, err)
	text, err := os.ReadFile(only(t, dir))
	assert.NilError(t, err)
	assert.Check(t, is.Contains(string(text), `"event":"begin"`), "it is there before the effect may happen")
	r.Fill(func(e *audit.Effect) { e.ProviderInstance = "i-1" })
	code := 3
	assert.NilError(t, r.End(audit.Outcome{Status: "failed", ExitCode: &code, MemoryUsedMB: 1.5}))
	shut(t, log)

	lines := linesOf(t, dir)
	assert.Equal(t, len(lines), 5, "%+v", lines)
	assert.Equal(t, lines[0].Event, "file")
	begin, end := lines[2], lines[3]
	assert.Equal(t, begin.Operation, "execute")
	assert.Equal(t, end.Event, "end")
	assert.Equal(t, end.EffectID, begin.EffectID)
	assert.Check(t, begin.EffectID != "")
	assert.Equal(t, end.Operation, "execute", "it can be read by itself")
	assert.Equal(t, end.Status, "failed")
	at, err := time.Parse(time.RFC3339Nano, end.Timestamp)
	assert.NilError(t, err)
	assert.Check(t, strings.HasSuffix(end.Timestamp, "Z") && time.Since(at) < time.Minute, end.Timestamp)
	assert.Equal(t, lines[4].Note, "the broker stops")

	info, err := os.Stat(only(t, dir))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	report := intact(t, dir)
	assert.Equal(t, report.Effects, 1)
	assert.Equal(t, report.Open, 0)
}

func TestCodeIsWrittenOnlyWhereItIsWanted(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir})
	act := func() {
		t.Helper()
		r, err := log.Begin(t.Context(), effect("execute"))
		assert.NilError(t, err)
		assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	}
	act()
	log.Change(audit.Detail{IncludeCode: true})
	act()
	lines := linesOf(t, dir)
	assert.Equal(t, lines[2].Code, "")
	assert.Equal(t, lines[4].Code, "print(1)")
	assert.Equal(t, lines[5].Code, "", "once is enough")
}

func TestWhatTenantsWriteCannotForgeALine(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir})
	forged := effect("write_file")
	forged.Path = "/x\n{\"seq\":4,\"prev\":\"\"}\n\x00\xff"
	r, err := log.Begin(t.Context(), forged)
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	assert.Equal(t, len(linesOf(t, dir)), 4)
	intact(t, dir)
}

func TestNoRequestMakesALineOfMegabytes(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir, Detail: audit.Detail{IncludeCode: true}})
	long := effect("run_command")
	long.Program = strings.Repeat("é", 1<<20)
	long.Code = strings.Repeat("\x00", 16<<20)
	long.Paths = slices.Repeat([]string{strings.Repeat("p", 1<<16)}, 10_000)
	r, err := log.Begin(t.Context(), long)
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	info, err := os.Stat(only(t, dir))
	assert.NilError(t, err)
	assert.Check(t, info.Size() < 10<<20, "%d", info.Size())
	assert.Equal(t, intact(t, dir).Effects, 1)
	assert.Check(t, !strings.Contains(linesOf(t, dir)[2].Program, "\uFFFD"), "characters are whole")
}

func TestTheNextRunGoesOnWhereTheLastEnded(t *testing.T) {
	dir := newDir(t)
	for range 3 {
		log := open(t, audit.Options{Dir: dir})
		r, err := log.Begin(t.Context(), effect("create"))
		assert.NilError(t, err)
		assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
		shut(t, log)
	}
	only(t, dir)
	assert.Equal(t, intact(t, dir).Effects, 3)
}

func TestAnEffectThatACrashCutShortGetsAnEndAtTheNextStart(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir})
	_, err := log.Begin(t.Context(), effect("create"))
	assert.NilError(t, err)
	shut(t, log) // as far as that effect is concerned, it is a crash
	assert.Equal(t, intact(t, dir).Open, 1)

	open(t, audit.Options{Dir: dir})
	assert.Equal(t, intact(t, dir).Open, 0)
	lines := linesOf(t, dir)
	end := lines[len(lines)-1]
	assert.Equal(t, end.Event, "end")
	assert.Equal(t, end.Status, "unknown")
}

func TestAnEffectThatLastsBeyondItsFileGetsItsEndInALaterOne(t *testing.T) {
	dir, now := newDir(t), newClock()
	log := open(t, audit.Options{Dir: dir, Now: now.Now})
	long, err := log.Begin(t.Context(), effect("execute"))
	assert.NilError(t, err)
	lost, err := log.Begin(t.Context(), effect("create"))
	assert.NilError(t, err)
	_ = lost
	for range 2 {
		now.move(24 * time.Hour)
		r, err := log.Begin(t.Context(), effect("destroy"))
		assert.NilError(t, err)
		assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	}
	assert.NilError(t, long.End(audit.Outcome{Status: "succeeded"}))
	shut(t, log)
	log = open(t, audit.Options{Dir: dir, Now: now.Now})
	report := intact(t, dir)
	assert.Equal(t, report.Open, 0, "the newest file names what was open before it")
	assert.Equal(t, report.Files, 3)
	shut(t, log)
}

func TestATornLineIsSetAsideAndNoted(t *testing.T) {
	for name, tail := range map[string]string{
		"half a line":           `{"seq":5,"prev":"00`,
		"zeros":                 "\x00\x00\x00\x00",
		"a line without a hash": "{\"seq\":5}\n",
		"lines of garbage":      "garbage\nand more\nand",
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			shut(t, open(t, audit.Options{Dir: dir}))
			path := only(t, dir)
			edit(t, path, func(text []byte) []byte { return append(text, tail...) })
			open(t, audit.Options{Dir: dir})
			intact(t, dir)
			lines := linesOf(t, dir)
			torn := lines[len(lines)-2]
			assert.Check(t, is.Contains(torn.Note, "torn"))
			kept, err := os.ReadFile(dir + "/" + torn.File)
			assert.NilError(t, err)
			assert.Equal(t, string(kept), tail)
		})
	}
}

func TestALogThatIsTornInItsVeryFirstLineBeginsAnew(t *testing.T) {
	dir, now := newDir(t), newClock()
	assert.NilError(t, os.Mkdir(dir, 0o700))
	assert.NilError(t, os.WriteFile(dir+"/audit-2026-03-01-000000000001.jsonl", []byte(`{"seq":1,"pr`), 0o600))
	open(t, audit.Options{Dir: dir, Now: now.Now})
	report := intact(t, dir)
	assert.Equal(t, report.First, uint64(1))
	assert.Check(t, is.Contains(linesOf(t, dir)[1].Note, "torn"))
}

// Whoever changes the log while the broker is down is not covered up.
func TestAChangedFileStaysAsItIsAndAnotherBegins(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir})
	r, err := log.Begin(t.Context(), effect("create"))
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	shut(t, log)
	edit(t, only(t, dir), func(text []byte) []byte { return []byte(strings.Replace(string(text), "acme", "evil", 1)) })
	log = open(t, audit.Options{Dir: dir})
	r, err = log.Begin(t.Context(), effect("create"))
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	assert.Equal(t, len(segments), 2)
	header := linesIn(t, segments[1])[0]
	assert.Check(t, is.Contains(header.Note, "was changed: line 3"))
	report, err := audit.Verify([]string{dir}, nil)
	assert.NilError(t, err)
	assert.Equal(t, report.Problem.Fault, audit.FaultChanged)
	assert.Equal(t, report.Problem.Line, 3)
}

func TestAFileIsFollowedByAnotherAtItsSize(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir, Detail: audit.Detail{MaxBytes: 4000}})
	for range 50 {
		r, err := log.Begin(t.Context(), effect("create"))
		assert.NilError(t, err)
		assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	}
	shut(t, log)
	assert.Check(t, intact(t, dir).Files > 3)
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	for _, s := range segments {
		info, err := os.Stat(s.Path)
		assert.NilError(t, err)
		assert.Check(t, info.Size() <= 4500, "the header comes on top: %d", info.Size())
	}
}

func TestOldFilesAreCompressedAndRemovedForTheirAge(t *testing.T) {
	dir, now := newDir(t), newClock()
	log := open(t, audit.Options{Dir: dir, Now: now.Now, Detail: audit.Detail{KeepDays: 2}})
	for range 5 {
		r, err := log.Begin(t.Context(), effect("create"))
		assert.NilError(t, err)
		assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
		now.move(24 * time.Hour)
	}
	now.move(-24 * time.Hour)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		segments, err := audit.Segments(dir)
		if err != nil {
			return poll.Error(err)
		}
		if len(segments) == 3 && segments[0].Compressed && segments[1].Compressed && segments[0].Day == "2026-03-03" {
			return poll.Success()
		}
		return poll.Continue("%+v", segments)
	}, poll.WithDelay(5*time.Millisecond), poll.WithTimeout(2*time.Minute))
	report := intact(t, dir)
	assert.Check(t, report.Explained, "the log says what was removed")
	shut(t, log)

	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	assert.NilError(t, os.Remove(segments[0].Path))
	report, err = audit.Verify([]string{dir}, nil)
	assert.NilError(t, err)
	assert.Equal(t, report.Problem.Fault, audit.FaultMissing, "of this the log says nothing")
}

func TestTwoLogsNeverShareADirectory(t *testing.T) {
	dir := newDir(t)
	open(t, audit.Options{Dir: dir})
	_, err := audit.Open(audit.Options{Dir: dir, Logger: hclog.NewNullLogger()})
	assert.ErrorContains(t, err, "another broker")
}

func TestADirectoryThatOthersMayEnterIsRefused(t *testing.T) {
	dir := newDir(t)
	assert.NilError(t, os.Mkdir(dir, 0o755))
	_, err := audit.Open(audit.Options{Dir: dir, Logger: hclog.NewNullLogger()})
	assert.ErrorContains(t, err, "chmod 700")
}

func TestAFileThatIsCompressedAfterItWasListedIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	_, err := audit.OpenReader(path, false)
	assert.ErrorIs(t, err, os.ErrNotExist)

	file, err := os.Create(path + ".gz")
	assert.NilError(t, err)
	zip := gzip.NewWriter(file)
	_, err = zip.Write([]byte("line\n"))
	assert.NilError(t, errors.Join(err, zip.Close(), file.Close()))
	reader, err := audit.OpenReader(path, false)
	assert.NilError(t, err)
	defer reader.Close()
	line, err := reader.Next()
	assert.NilError(t, err)
	assert.Equal(t, string(line), "line")
}
