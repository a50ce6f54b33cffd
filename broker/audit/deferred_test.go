package audit_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

func awaitHealth(t *testing.T, log *audit.Log, healthy bool) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if err := log.Err(); (err == nil) != healthy {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
}

// endsOf counts the ends that an effect has in the files.
func endsOf(t *testing.T, dir, id string) (ends []line) {
	t.Helper()
	for _, l := range linesOf(t, dir) {
		if l.Event == "end" && l.EffectID == id {
			ends = append(ends, l)
		}
	}
	return ends
}

func TestAnEndIsWrittenAtOnceAndDoesNotWaitForTheDisk(t *testing.T) {
	dir, f := newDir(t), &faults{}
	log := open(t, audit.Options{Dir: dir, Open: f.Open})
	r, err := log.Begin(t.Context(), effect("execute"))
	assert.NilError(t, err)
	before, _ := log.Last()
	release := make(chan struct{})
	f.set(func(f *faults) { f.sync = func() error { <-release; return nil } })
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	assert.Check(t, is.Len(endsOf(t, dir, audit.IDOf(r)), 1))
	last, more := log.Last()
	assert.Equal(t, last, before, "nobody is sent what is not on disk")
	close(release)
	<-more // with no other line to take it along
	last, _ = log.Last()
	assert.Equal(t, last, before+1)
}

// A full disk does not take back what was written before, for a broker that dies then.
func TestALineThatDoesNotFitLeavesTheEndsBeforeIt(t *testing.T) {
	dir, f := newDir(t), &faults{}
	log := open(t, audit.Options{Dir: dir, Open: f.Open, RetryEvery: time.Hour})
	r, err := log.Begin(t.Context(), effect("execute"))
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	f.set(func(f *faults) { f.write, f.half = failing(unix.ENOSPC), true })
	_, err = log.Begin(t.Context(), effect("create"))
	assert.ErrorContains(t, err, "cannot be written")
	assert.Check(t, is.Len(endsOf(t, dir, audit.IDOf(r)), 1))
	intact(t, dir)
}

// Whoever was told that the end is written has it in the log, whatever the disk says
// afterwards.
func TestEndsThatTheDiskDoesNotConfirmAreWrittenAgain(t *testing.T) {
	for name, fresh := range map[string]bool{"by a beginning": true, "by themselves": false} {
		t.Run(name, func(t *testing.T) {
			dir, f := newDir(t), &faults{}
			log := open(t, audit.Options{Dir: dir, Open: f.Open, RetryEvery: 5 * time.Millisecond})
			r, err := log.Begin(t.Context(), effect("execute"))
			assert.NilError(t, err)
			f.set(func(f *faults) { f.sync = failing(unix.EIO) })
			assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
			if fresh {
				_, err := log.Begin(t.Context(), effect("create"))
				assert.ErrorContains(t, err, "cannot be written")
			}
			awaitHealth(t, log, false)
			f.set(func(f *faults) { f.sync = nil })
			awaitHealth(t, log, true)
			ends := endsOf(t, dir, audit.IDOf(r))
			assert.Check(t, is.Len(ends, 1))
			assert.Check(t, !ends[0].Late, "its caller was told nothing else")
			shut(t, log)
			assert.Equal(t, intact(t, dir).Open, 0)
		})
	}
}
