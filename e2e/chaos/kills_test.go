package chaos_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// settleEvery is after how many blows the world is left alone and checked.
const settleEvery = 25

func TestKillsAtRandomLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	s := seed(t)
	w := newWorld(t, s, options{keepers: true})
	w.start("")
	w.waitReady()
	began := time.Now()
	kills := cmp.Or(*killsFlag, settleEvery)
	blows := schedule(newRandom(s, 0), kills)
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
	w.finish()
	sum := w.check()
	t.Logf("%d kills in %s: %+v", kills, time.Since(began).Round(time.Second), sum)
	for _, d := range doors {
		assert.Check(t, sum.Doors[d.name].CutOff > 0, "nothing was cut off in the door %s: that was not tested", d.name)
	}
}

// strike does what the nemesis wants, and waits until the broker is ready.
func (w *world) strike(b blow) {
	w.t.Helper()
	w.wound(b, "")
	if b.Broker {
		w.waitReady()
	}
}

// wound does what the nemesis wants. points are those of the next broker.
func (w *world) wound(b blow, points string) {
	w.t.Helper()
	pause(context.Background(), b.After)
	if b.Plugin {
		w.killPlugin(b.Of)
	}
	if b.Broker {
		w.kill()
		pause(context.Background(), b.Down)
		w.start(points)
	}
}
