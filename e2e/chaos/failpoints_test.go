package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// reachBound is how long it may take until the broker comes by a fail point.
const reachBound = 2 * time.Minute

// mostHits is how often at most a point is passed before it kills.
const mostHits = 4

// TestDyingBetweenAnyTwoStepsLosesAndDoublesNothing kills the broker at each of its
// fail points, one after the other, in one world whose history grows.
func TestDyingBetweenAnyTwoStepsLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	s := seed(t)
	w := newWorld(t, s, options{})
	random := newRandom(s, 2)
	w.start("")
	w.waitReady()
	for _, point := range failpoint.All() {
		if ofSnapshots(point) {
			continue
		}
		clients := w.letLoose()
		// In the middle of the work, so that there is something to be put in order.
		pause(t.Context(), 150*time.Millisecond)
		w.kill()
		if point == failpoint.ReconcileOrphan {
			w.cloud.Stray(w.brokerID())
		}
		hit := 1
		if !atStart(point) {
			hit += random.IntN(mostHits)
		}
		w.start(fmt.Sprintf("%s=kill:%d", point, hit))
		select {
		case <-w.dead():
		case <-time.After(reachBound):
			t.Errorf("the broker has not come by %s for the %d. time:\n%s", point, hit, w.lastLog())
		}
		w.kill()
		w.start("")
		w.waitReady()
		clients.end()
		w.settle()
		w.check()
		if t.Failed() {
			t.Fatalf("after %s=kill:%d", point, hit)
		}
	}
	t.Logf("%d fail points: %+v", len(failpoint.All()), w.check())
}

// atStart says that a point is passed but once, when the broker puts in order what
// there is.
func atStart(p failpoint.Point) bool {
	return p == failpoint.ReconcileAdopted || p == failpoint.ReconcileOrphan || p == failpoint.ReconcileListed
}

// calls are those of the cloud. Some are made for clients of front doors alone.
var calls = []string{"create", "execute", "destroy", "list", "start", "command", "write", "read", "mkdir", "context", "pause", "resume"}

// TestAPluginThatDiesInAnyCallLosesAndDoublesNothing kills the plugin before and
// after each effect of the cloud, while that is being asked. In a short run the broker dies with
// it in every second case, and in a long one each is tried with and without.
func TestAPluginThatDiesInAnyCallLosesAndDoublesNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := seed(t)
	w := newWorld(t, s, options{})
	w.start("")
	w.waitReady()
	round := 0
	for _, call := range calls {
		for _, lie := range []cloud.Lie{cloud.KillBefore, cloud.KillAfter} {
			deaths := []bool{false, true}
			if *killsFlag == 0 {
				deaths = []bool{(round+round/2)%2 == 0}
			}
			for _, broker := range deaths {
				clients := w.letLoose()
				round++
				before := w.cloud.Told()[lie]
				w.cloud.LieOnce(call, lie)
				w.awaitTold(lie, before+1)
				if broker {
					w.kill()
					w.start("")
					w.waitReady()
				}
				clients.end()
				w.settle()
				w.check()
				if t.Failed() {
					t.Fatalf("after %s in %s, with the broker: %t", lie, call, broker)
				}
			}
		}
	}
	t.Logf("%d deaths: %+v", round, w.check())
}
