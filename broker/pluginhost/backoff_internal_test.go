package pluginhost

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// A plugin that works may be killed by what it is asked to do; killed without end, it is
// not started without end.
func TestAPluginThatWorksAndDiesForEverIsStartedEverMoreSeldom(t *testing.T) {
	b := defaultBackoff()
	deaths, failures := 0, 0
	die := func(ran time.Duration) time.Duration {
		failures = b.forgive(failures, ran, true) + 1
		deaths = b.repeated(deaths, ran, true)
		return max(b.pause(failures), b.penalty(deaths))
	}
	for range b.Repeats {
		assert.Assert(t, die(time.Second) < 300*time.Millisecond)
	}
	var before time.Duration
	for range 9 {
		pause := die(time.Second)
		assert.Assert(t, pause > before, "%v after %v", pause, before)
		before = pause
	}
	for range 100 {
		pause := die(time.Second)
		assert.Assert(t, pause >= 45*time.Second && pause <= 75*time.Second, "%v", pause)
	}
	assert.Assert(t, die(b.Stable) < 300*time.Millisecond, "it has lived long enough")
	for range 1000 {
		assert.Assert(t, die(b.Stable/3) < 300*time.Millisecond, "it lives long enough each time")
	}
}

func TestDeathsWithoutWorkAreFailuresAlone(t *testing.T) {
	b := defaultBackoff()
	assert.Equal(t, b.repeated(7, time.Second, false), 7)
	assert.Equal(t, b.penalty(b.Repeats), time.Duration(0))
}
