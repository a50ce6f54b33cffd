package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// disk is a small file system of its own.
type disk struct {
	t   *testing.T
	dir string
}

func newDisk(t *testing.T, megabytes int) disk {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", megabytes)); err != nil {
		binaries.Missing(t, fmt.Sprintf("a small file system takes root: %v", err))
	}
	t.Cleanup(func() {
		keepOfFailed(t, dir) // what the broker has written is gone with the disk
		assert.Check(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	return disk{t, dir}
}

// fill leaves no room at all, and returns what makes room again.
func (d disk) fill() (empty func()) {
	d.t.Helper()
	path := filepath.Join(d.dir, "ballast")
	ballast, err := os.Create(path)
	assert.NilError(d.t, err)
	defer ballast.Close()
	_, err = io.Copy(ballast, zeroes{})
	assert.Check(d.t, errors.Is(err, unix.ENOSPC), "%v", err)
	return func() {
		d.t.Helper()
		assert.NilError(d.t, os.Remove(path))
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }

// readOnly makes the disk so, and is undone by what it returns. Nobody may have a
// file of it open to write.
func (d disk) readOnly() (writable func()) {
	d.t.Helper()
	assert.NilError(d.t, unix.Mount("", d.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	return func() {
		d.t.Helper()
		assert.NilError(d.t, unix.Mount("", d.dir, "", unix.MS_REMOUNT, ""))
	}
}

// creations counts what the cloud has made.
func (w *world) creations() (n int) {
	for _, e := range w.cloud.Effects() {
		if e.Kind == cloud.Created {
			n++
		}
	}
	return n
}

// awaitCreations waits until the cloud has made some more.
func (w *world) awaitCreations() {
	w.t.Helper()
	before := w.creations()
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		if w.creations() < before+5 {
			return poll.Continue("nothing is made\n%s", w.lastLog())
		}
		return poll.Success()
	}, poll.WithTimeout(leakBound), poll.WithDelay(20*time.Millisecond))
}

// both lets a test have the faulty disk below the state, the audit log or both.
func both(t *testing.T, megabytes int, test func(t *testing.T, d disk, o options)) {
	for name, place := range map[string]func(dir string) options{
		"state": func(dir string) options { return options{state: filepath.Join(dir, "state"), audit: dir + "-audit"} },
		"audit": func(dir string) options { return options{audit: filepath.Join(dir, "audit")} },
		"both":  func(dir string) options { return options{state: filepath.Join(dir, "state")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, megabytes)
			test(t, d, place(d.dir))
		})
	}
}

func TestAFullDiskLosesAndDoublesNothing(t *testing.T) {
	both(t, 8, func(t *testing.T, d disk, o options) {
		w := newWorld(t, seed(t), o)
		w.start("")
		w.waitReady()
		clients := w.letLoose()
		w.awaitCreations()
		for range 2 {
			empty := d.fill()
			pause(t.Context(), time.Second)
			w.kill() // what is written at the very end of the disk must be readable
			empty()
			w.start("")
			w.waitReady()
			w.awaitCreations()
			empty = d.fill()
			pause(t.Context(), time.Second)
			empty()
			w.awaitCreations() // it goes on by itself
		}
		clients.end()
		w.settle()
		w.restart()
		w.settle()
		t.Logf("%+v", w.check())
	})
}

func TestAReadOnlyDiskStopsTheBrokerAndNothingElseHappens(t *testing.T) {
	tier.Full(t)
	both(t, 8, func(t *testing.T, d disk, o options) {
		w := newWorld(t, seed(t), o)
		w.start("")
		w.waitReady()
		clients := w.letLoose()
		w.awaitCreations()
		w.kill()
		w.waitGone()
		writable := d.readOnly()
		w.cloud.Down() // waits for calls of the broker that is dead
		assert.NilError(t, w.cloud.Up())
		before := len(w.cloud.Effects())
		w.start("")
		select {
		case <-w.dead():
		case <-time.After(reachBound):
			t.Errorf("the broker serves on a disk that it cannot write:\n%s", w.lastLog())
		}
		w.kill()
		assert.Equal(t, len(w.cloud.Effects()), before)
		writable()
		w.start("")
		w.waitReady()
		w.awaitCreations()
		clients.end()
		w.settle()
		t.Logf("%+v", w.check())
	})
}

// TestASlowDiskLosesAndDoublesNothing has each write take long.
func TestASlowDiskLosesAndDoublesNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, slow := range map[failpoint.Point]string{
		failpoint.StateCommit: "100ms",
		failpoint.AuditWrite:  "100ms",
		failpoint.AuditBegun:  "20ms",
		failpoint.StateSync:   "100ms",
		failpoint.AuditSync:   "100ms",
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed(t), options{})
			w.start(fmt.Sprintf("%s=delay:%s", name, slow))
			w.waitReady()
			clients := w.letLoose()
			w.awaitCreations()
			w.strike(blow{After: time.Second, Broker: true})
			w.kill()
			w.start(fmt.Sprintf("%s=delay:%s", name, slow))
			w.waitReady()
			w.awaitCreations()
			clients.end()
			w.restart()
			w.settle()
			t.Logf("%+v", w.check())
		})
	}
}
