package memory

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
)

func TestTheLessIsFreeTheSoonerTheGuardLooks(t *testing.T) {
	for free, want := range map[int64]time.Duration{
		-1 << 40:            20 * time.Millisecond,
		0:                   20 * time.Millisecond,
		perPause - 1:        20 * time.Millisecond,
		perPause:            40 * time.Millisecond,
		480 << 20:           100 * time.Millisecond,
		64 << 30:            250 * time.Millisecond,
		math.MaxInt64:       250 * time.Millisecond,
		math.MaxInt64 - 123: 250 * time.Millisecond,
	} {
		assert.Equal(t, pause(free), want, "%d", free)
	}
}

func TestWhatEndedForItsMemory(t *testing.T) {
	const limit = 1 << 50 // more than any machine uses
	killed := isolation.Exit{Code: 137, Signal: int(unix.SIGKILL)}
	held := func(e isolation.Exit, bytes int64) isolation.Exit {
		e.PeakBytes = bytes
		return e
	}
	for name, c := range map[string]struct {
		guard bool // it has killed the program
		limit int64
		exit  isolation.Exit
		ok    bool
		want  bool
	}{
		"killed by the guard":                {guard: true, limit: limit, want: true},
		"killed by whoever asked":            {limit: limit},
		"killed while it held all":           {limit: limit, exit: held(killed, limit), ok: true, want: true},
		"killed while it held little":        {limit: limit, exit: held(killed, limit-1), ok: true},
		"killed while the sandbox held all":  {limit: 1, exit: held(killed, 0), ok: true, want: true},
		"killed where there is no limit":     {limit: math.MaxInt64, exit: held(killed, limit), ok: true},
		"another signal":                     {limit: limit, exit: held(isolation.Exit{Signal: int(unix.SIGSEGV)}, limit), ok: true},
		"ended by itself with much memory":   {limit: limit, exit: held(isolation.Exit{Code: 137}, limit), ok: true},
		"ended just before the guard killed": {guard: true, limit: limit, exit: isolation.Exit{Code: 1}, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Guarded{guard: NewGuard(c.limit)}
			g.oom.Store(c.guard)
			assert.Equal(t, g.EndedForMemory(c.exit, c.ok), c.want)
		})
	}
}
