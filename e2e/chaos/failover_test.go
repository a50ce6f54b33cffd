package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

const (
	// failoverKills are those of a short run.
	failoverKills = 18
	// roundOf is after how many blows the world gets well and is checked. Each round
	// has another policy.
	roundOf = 6
	// lull is how long clients go on when all is well again.
	lull = 500 * time.Millisecond
)

// TestFailOverWhileAllDieLosesAndDoublesNothing has two providers, each with a cloud of
// its own, which are ill by turns, so that requests fail over all the time.
func TestFailOverWhileAllDieLosesAndDoublesNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := seed(t)
	w := newWorld(t, s, options{providers: []string{"east", "west"}})
	policies := []routing.Policy{routing.Ordered, routing.Cheapest, routing.Fastest}
	w.configure(string(policies[0]))
	w.start("")
	w.waitReady()
	began := time.Now()
	kills := cmp.Or(*killsFlag, failoverKills) // those of the schedule
	round, deaths := 0, 0
	for blows := range slices.Chunk(stages(newRandom(s, 3), kills, w.labels()), roundOf) {
		clients := w.letLoose()
		for _, st := range blows {
			deaths += w.endure(st)
		}
		w.heal()
		pause(t.Context(), lull)
		w.kill() // who waits for certainty would do so for long
		deaths++
		clients.end()
		round++
		w.configure(string(policies[round%len(policies)]))
		w.start("") // and so there is a reconciliation
		w.waitReady()
		w.settle()
		w.check()
		if t.Failed() {
			t.Fatalf("after round %d, of %+v", round, blows)
		}
	}
	w.failOver()
	over := w.failedOver()
	t.Logf("%d kills, %d of them by fail points, in %s: %+v", deaths, deaths-kills-round, time.Since(began).Round(time.Second), w.check())
	t.Logf("served by: %s", inWords(over.reasons))
	t.Logf("failed over, after: %s", inWords(over.after))
}

// failOver has the first cloud be down until a request has gone to the next one for it: on a
// busy machine a few blows may all come before any does.
func (w *world) failOver() {
	w.t.Helper()
	w.configure(string(routing.Ordered))
	w.restart()
	clients := w.letLoose()
	w.suffer([]illness{down, well})
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		if w.failedOver().reasons[routing.ReasonFallback] > 0 {
			return poll.Success()
		}
		return poll.Continue("nothing has failed over")
	}, poll.WithTimeout(time.Minute), poll.WithDelay(betweenTries))
	w.heal()
	clients.end()
	w.settle()
	w.check()
}

// failOver counts answers.
type failOver struct {
	// reasons why a provider served, and after what: the codes of those that could not.
	reasons, after map[string]int
}

// failedOver counts how requests found their providers.
func (w *world) failedOver() failOver {
	over := failOver{map[string]int{}, map[string]int{}}
	for _, e := range w.history.all() {
		if !e.answered() || e.Reason == "" || e.Operation != opCreate && e.Operation != opRun {
			continue
		}
		over.reasons[e.Reason]++
		if e.Reason == routing.ReasonFallback {
			over.after[strings.Join(e.Tried, "+")]++
		}
	}
	return over
}

// inWords lists counts by name.
func inWords(counts map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(words, ", ")
}
