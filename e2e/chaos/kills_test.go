package chaos_test

import (
	"context"
	"testing"
	"time"
)

// settleEvery is after how many blows the world is left alone and checked.
const settleEvery = 25

func TestKillsAtRandomLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	s := seed(t)
	w := newWorld(t, s, options{})
	w.start("")
	w.waitReady()
	began := time.Now()
	blows := schedule(newRandom(s, 0), *killsFlag)
	for len(blows) > 0 {
		clients := w.letLoose()
		n := min(settleEvery, len(blows))
		for _, b := range blows[:n] {
			w.strike(b)
		}
		blows = blows[n:]
		clients.end()
		w.restart() // and so there is a reconciliation
		w.settle()
		w.check()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills in %s: %+v", *killsFlag, time.Since(began).Round(time.Second), w.check())
}

// strike does what the nemesis wants.
func (w *world) strike(b blow) {
	w.t.Helper()
	pause(context.Background(), b.After)
	if b.Plugin {
		w.killPlugin()
	}
	if b.Broker {
		w.kill()
		pause(context.Background(), b.Down)
		w.start("")
		w.waitReady()
	}
}
