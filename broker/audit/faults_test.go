package audit_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// failing is a call that fails with an error of the system.
func failing(err error) func() error { return func() error { return err } }

// sink is a log with its surroundings, for a fault to break and to mend.
type sink struct {
	dir    string
	faults *faults
	clock  *clock
	log    *audit.Log
}

// newest is the file that is being written.
func (s *sink) newest(t testing.TB) string {
	t.Helper()
	segments, err := audit.Segments(s.dir)
	assert.NilError(t, err)
	return segments[len(segments)-1].Path
}

// sinkFault is one way in which a log can fail. The log copes with some; with others
// nothing may happen until they are mended.
type sinkFault struct {
	copes  bool
	breaks func(t *testing.T, s *sink)
	mend   func(t *testing.T, s *sink)
	// lost says that lines which were durable are gone, by the fault itself: then
	// the chain must show it.
	lost bool
	// ends are taken all the same.
	ends bool
	// patience of the log; 0 for the usual.
	patience time.Duration
}

func sinkFaults() map[string]sinkFault {
	clear := func(_ *testing.T, s *sink) {
		s.faults.set(func(f *faults) { f.write, f.sync, f.truncate, f.open, f.half = nil, nil, nil, nil, false })
	}
	nothing := func(*testing.T, *sink) {}
	return map[string]sinkFault{
		"the disk is full": {breaks: func(_ *testing.T, s *sink) {
			s.faults.set(func(f *faults) { f.write = failing(unix.ENOSPC) })
		}, mend: clear},
		"the disk is full in the middle of a line": {breaks: func(_ *testing.T, s *sink) {
			s.faults.set(func(f *faults) { f.write, f.half = failing(unix.ENOSPC), true })
		}, mend: clear},
		"what is half written cannot be taken back": {breaks: func(_ *testing.T, s *sink) {
			s.faults.set(func(f *faults) { f.write, f.half, f.truncate = failing(unix.EIO), true, failing(unix.EIO) })
		}, mend: clear},
		"writing fails": {breaks: func(_ *testing.T, s *sink) {
			s.faults.set(func(f *faults) { f.write = failing(unix.EIO) })
		}, mend: clear},
		"the disk does not confirm": {breaks: func(_ *testing.T, s *sink) {
			s.faults.set(func(f *faults) { f.sync = failing(unix.EIO) })
		}, mend: clear},
		"the file system becomes read-only": {breaks: func(_ *testing.T, s *sink) {
			s.faults.set(func(f *faults) {
				f.write, f.open, f.truncate = failing(unix.EROFS), failing(unix.EROFS), failing(unix.EROFS)
			})
		}, mend: clear},
		"no file can be opened when another day comes": {breaks: func(_ *testing.T, s *sink) {
			s.faults.set(func(f *faults) { f.open = failing(unix.EMFILE) })
			s.clock.move(24 * time.Hour)
		}, mend: clear},
		"the disk is slow beyond the bound": {ends: true, patience: 500 * time.Millisecond, breaks: func(_ *testing.T, s *sink) {
			release := make(chan struct{})
			s.faults.set(func(f *faults) { f.sync = func() error { <-release; return nil } })
			s.faults.set(func(f *faults) { f.truncate = func() error { return nil } })
			s.faults.mend = func() { close(release) }
		}, mend: func(t *testing.T, s *sink) {
			clear(t, s)
			s.faults.mend()
		}},
		"the file is removed": {copes: true, lost: true, breaks: func(t *testing.T, s *sink) {
			assert.NilError(t, os.Remove(s.newest(t)))
		}, mend: nothing},
		"the file is replaced by a link": {copes: true, lost: true, breaks: func(t *testing.T, s *sink) {
			target := filepath.Join(t.TempDir(), "elsewhere")
			assert.NilError(t, os.WriteFile(target, nil, 0o600))
			path := s.newest(t)
			assert.NilError(t, os.Remove(path))
			assert.NilError(t, os.Symlink(target, path))
			t.Cleanup(func() {
				text, err := os.ReadFile(target)
				assert.NilError(t, err)
				assert.Equal(t, string(text), "", "the link is not followed")
			})
		}, mend: nothing},
		"the directory is removed": {copes: true, lost: true, breaks: func(t *testing.T, s *sink) {
			assert.NilError(t, os.RemoveAll(s.dir))
		}, mend: nothing},
		"a link stands where the next file should": {copes: true, breaks: func(t *testing.T, s *sink) {
			last, _ := s.log.Last()
			s.clock.move(24 * time.Hour)
			path := filepath.Join(s.dir, audit.NameOf(s.clock.Now(), last+1))
			assert.NilError(t, os.Symlink("/etc/passwd", path))
		}, mend: nothing},
		"the clock goes back by two days": {copes: true, breaks: func(_ *testing.T, s *sink) { s.clock.move(-48 * time.Hour) }, mend: nothing},
		"another day comes":               {copes: true, breaks: func(_ *testing.T, s *sink) { s.clock.move(24 * time.Hour) }, mend: nothing},
		"the file has its size": {copes: true, breaks: func(_ *testing.T, s *sink) {
			s.log.Change(audit.Detail{MaxBytes: 1})
		}, mend: nothing},
	}
}

func TestNothingHappensThatTheLogCannotTakeDown(t *testing.T) {
	for name, fault := range sinkFaults() {
		t.Run(name, func(t *testing.T) {
			s := &sink{dir: newDir(t), faults: &faults{}, clock: newClock()}
			s.log = open(t, audit.Options{
				Dir: s.dir, Open: s.faults.Open, Now: s.clock.Now, Detail: audit.Detail{Patience: fault.patience}, RetryEvery: 5 * time.Millisecond,
			})
			s.withstands(t, fault)
		})
	}
}

// withstands breaks a log while effects are under way, and mends it.
func (s *sink) withstands(t *testing.T, fault sinkFault) {
	t.Helper()
	var done []string // effects that happened
	act := func() error {
		r, err := s.log.Begin(t.Context(), effect("create"))
		if err != nil {
			return err
		}
		done = append(done, audit.IDOf(r))
		return r.End(audit.Outcome{Status: "succeeded"})
	}
	assert.NilError(t, act())
	meanwhile, err := s.log.Begin(t.Context(), effect("execute"))
	assert.NilError(t, err)
	done = append(done, audit.IDOf(meanwhile))

	fault.breaks(t, s)
	if fault.copes {
		assert.NilError(t, act())
		assert.NilError(t, meanwhile.End(audit.Outcome{Status: "succeeded"}))
	} else {
		begun := len(done)
		for range 3 {
			err := act()
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
			assert.ErrorContains(t, err, "the audit log cannot be written")
		}
		assert.Equal(t, len(done), begun, "nothing happened")
		assert.Assert(t, s.log.Err() != nil)
		assert.Check(t, !s.log.State().Writable)
		err := meanwhile.End(audit.Outcome{Status: "succeeded"})
		if fault.ends {
			assert.NilError(t, err)
		} else {
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
			assert.ErrorContains(t, err, "it was done")
		}
	}
	fault.mend(t, s)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if err := act(); err != nil {
			return poll.Continue("%v: %v", err, s.log.Err())
		}
		return poll.Success()
	}, poll.WithDelay(5*time.Millisecond), poll.WithTimeout(2*time.Minute))
	assert.Check(t, s.log.State().Writable)
	shut(t, s.log)

	report, err := audit.Verify([]string{s.dir}, nil)
	assert.NilError(t, err)
	if fault.lost {
		assert.Equal(t, report.Problem.Fault, audit.FaultMissing, "what is gone is missed")
		return
	}
	assert.Assert(t, report.OK, "%+v", report.Problem)
	assert.Equal(t, report.Open, 0)
	var begun, ended []string
	for _, l := range linesOf(t, s.dir) {
		switch {
		case l.Event == "begin":
			begun = append(begun, l.EffectID)
		case l.Event == "end" && l.Status == "succeeded":
			ended = append(ended, l.EffectID)
			assert.Check(t, !l.Late || !fault.copes && l.EffectID == audit.IDOf(meanwhile), "%+v", l)
		}
	}
	for _, id := range done {
		assert.Check(t, is.Contains(begun, id))
	}
	slices.Sort(done)
	slices.Sort(ended)
	assert.DeepEqual(t, ended, done)
}

func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting a file system of 64 KiB takes root: %v", err)
	}
	t.Cleanup(func() { assert.Check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func TestAFullFileSystem(t *testing.T) {
	mount := mountTmpfs(t, "size=64k")
	ballast := filepath.Join(mount, "ballast")
	s := &sink{dir: filepath.Join(mount, "audit"), faults: &faults{}, clock: newClock()}
	s.log = open(t, audit.Options{Dir: s.dir, Now: s.clock.Now, RetryEvery: 5 * time.Millisecond})
	s.withstands(t, sinkFault{
		breaks: func(t *testing.T, s *sink) {
			assert.ErrorIs(t, os.WriteFile(ballast, make([]byte, 1<<20), 0o600), unix.ENOSPC)
			for { // to the end of its last page
				r, err := s.log.Begin(t.Context(), effect("create"))
				if err != nil {
					return
				}
				if r.End(audit.Outcome{Status: "not counted"}) != nil {
					return
				}
			}
		},
		mend: func(t *testing.T, _ *sink) { assert.NilError(t, os.Remove(ballast)) },
	})
}

// A caller that goes away while its line is on its way has done nothing, and the log
// says so.
func TestALineWhoseCallerHasGone(t *testing.T) {
	dir, f := newDir(t), &faults{}
	log := open(t, audit.Options{Dir: dir, Open: f.Open, Detail: audit.Detail{Patience: 50 * time.Millisecond}, RetryEvery: 5 * time.Millisecond})
	entered, release := make(chan struct{}), make(chan struct{})
	f.set(func(f *faults) {
		f.sync = sync.OnceValue(func() error { close(entered); <-release; return nil })
	})
	refused := make(chan error, 1)
	go func() {
		_, err := log.Begin(t.Context(), effect("create"))
		refused <- err
	}()
	<-entered
	assert.ErrorContains(t, <-refused, "cannot be written")
	close(release)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		lines := linesOf(t, dir)
		if last := lines[len(lines)-1]; last.Event != "end" || last.Status != "not_begun" {
			return poll.Continue("%+v", last)
		}
		return poll.Success()
	}, poll.WithDelay(5*time.Millisecond), poll.WithTimeout(2*time.Minute))
	assert.Equal(t, intact(t, dir).Open, 0)
}

// What allows effects ends while the disk takes the line of one: that does not happen.
func TestAnEffectIsAllowedWhenItsLineIsOnDisk(t *testing.T) {
	dir, f := newDir(t), &faults{}
	var over atomic.Bool
	log := open(t, audit.Options{Dir: dir, Open: f.Open, Allowed: func() error {
		if over.Load() {
			return sdk.Errorf(sdk.CodeUnavailable, "it is over")
		}
		return nil
	}})
	f.set(func(f *faults) { f.sync = func() error { over.Store(true); return nil } })
	_, err := log.Begin(t.Context(), effect("execute"))
	assert.ErrorContains(t, err, "it is over")
	assert.Check(t, sdk.CodeOf(err) == sdk.CodeUnavailable)
	lines := linesOf(t, dir)
	last := lines[len(lines)-1]
	assert.Equal(t, last.Event, "end")
	assert.Equal(t, last.Status, audit.StatusNotBegun)
}
