package audit_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	mark "github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// slowly runs a test with a log whose disk takes 30 s to confirm, by a clock that does
// not make the test wait. The disk is fast at the start, and until test says otherwise.
func slowly(t *testing.T, patience time.Duration, test func(t *testing.T, log *audit.Log, slow *atomic.Bool, said *bytes.Buffer)) {
	dir := newDir(t)
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		said := &bytes.Buffer{}
		f := &faults{sync: func() error {
			if slow.Load() {
				time.Sleep(30 * time.Second)
			}
			return nil
		}}
		log := open(t, audit.Options{
			Dir: dir, Open: f.Open, Detail: audit.Detail{Patience: patience},
			Logger: hclog.New(&hclog.LoggerOptions{Output: said}),
		})
		test(t, log, &slow, said)
		shut(t, log)
	})
	assert.Equal(t, intact(t, dir).Open, 0)
}

func TestOnASlowDiskARequestWaitsWithinItsOwnDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		patience, deadline, waits time.Duration
		refused                   bool
	}{
		"and happens when the disk has its line": {patience: time.Minute, deadline: 40 * time.Second, waits: 30 * time.Second},
		"and is refused after it":                {patience: time.Minute, deadline: 10 * time.Second, waits: 10 * time.Second, refused: true},
		"or the operator's, if that is earlier":  {patience: 5 * time.Second, deadline: 40 * time.Second, waits: 5 * time.Second, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			slowly(t, test.patience, func(t *testing.T, log *audit.Log, slow *atomic.Bool, _ *bytes.Buffer) {
				slow.Store(true)
				defer slow.Store(false)
				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()
				begun := false
				began := time.Now()
				r, err := log.Begin(mark.WhenBegun(ctx, func() { begun = true }), effect("create"))
				assert.Equal(t, time.Since(began), test.waits)
				assert.Equal(t, begun, !test.refused)
				if !test.refused {
					assert.NilError(t, err)
					assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
					return
				}
				assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
				assert.ErrorContains(t, err, "the audit log cannot be written in time, since the broker's disk is slow")
				assert.Check(t, mark.OfRecorder(err))
				assert.Equal(t, log.State().Refused, uint64(1))
			})
		})
	}
}

func TestOperatorsHearOfASlowDiskBeforeAnythingIsRefused(t *testing.T) {
	slowly(t, 10*time.Second, func(t *testing.T, log *audit.Log, slow *atomic.Bool, said *bytes.Buffer) {
		slow.Store(true)
		refused := make(chan error, 1)
		go func() {
			_, err := log.Begin(t.Context(), effect("create"))
			refused <- err
		}()
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		assert.Check(t, is.Contains(said.String(), `the disk is slow; requests wait for it, each until its own deadline: of="audit log"`))
		assert.Check(t, is.Contains(said.String(), "refused_after=10s"))
		assert.Equal(t, log.Disk().State().Waiting, 1500*time.Millisecond)
		assert.NilError(t, log.Err(), "it can be written, slowly")
		assert.Equal(t, len(refused), 0)

		assert.ErrorContains(t, <-refused, "slow")
		time.Sleep(time.Millisecond)
		assert.ErrorContains(t, log.Err(), "the disk takes too long", "and those who come now need not wait")
		began := time.Now()
		_, err := log.Begin(t.Context(), effect("create"))
		assert.ErrorContains(t, err, "slow")
		assert.Equal(t, time.Since(began), time.Duration(0))

		slow.Store(false)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r, err := log.Begin(t.Context(), effect("create"))
		assert.NilError(t, err)
		assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
		assert.Check(t, is.Contains(said.String(), "the disk is no longer slow"))
		assert.Equal(t, log.Disk().State().Waiting, time.Duration(0))
	})
}

// What has happened is told while the disk still confirms what others are about to do.
func TestAnEndIsNotHeldUpByTheDisk(t *testing.T) {
	slowly(t, time.Minute, func(t *testing.T, log *audit.Log, slow *atomic.Bool, _ *bytes.Buffer) {
		first, err := log.Begin(t.Context(), effect("execute"))
		assert.NilError(t, err)
		slow.Store(true)
		second := make(chan error, 1)
		go func() {
			r, err := log.Begin(t.Context(), effect("create"))
			if err == nil {
				err = r.End(audit.Outcome{Status: "succeeded"})
			}
			second <- err
		}()
		synctest.Wait() // its line is on its way
		began := time.Now()
		assert.NilError(t, first.End(audit.Outcome{Status: "succeeded"}))
		assert.Equal(t, time.Since(began), time.Duration(0))
		assert.Equal(t, len(second), 0)
		assert.NilError(t, <-second)
		assert.Equal(t, time.Since(began), 30*time.Second)
		slow.Store(false)
	})
}

// A caller that leaves is no fault of the disk.
func TestACallerThatLeavesIsNotRefused(t *testing.T) {
	slowly(t, time.Minute, func(t *testing.T, log *audit.Log, slow *atomic.Bool, _ *bytes.Buffer) {
		slow.Store(true)
		defer slow.Store(false)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		_, err := log.Begin(ctx, effect("create"))
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, log.State().Refused, uint64(0))
	})
}
