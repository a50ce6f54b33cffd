package nemesis_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/model"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

const (
	// shortRun is how many faults there are without a flag.
	shortRun = 20
	// calmFaults and stormFaults are those of one round. In calm rounds there is one fault at a
	// time, from which all recovers before the next; in a storm each broker has its own, and so
	// has the database.
	calmFaults, stormFaults = 4, 60
)

// Five brokers, with all that can happen to them and to their database: nothing is lost, doubled,
// granted above a quota or left over, and nothing has two owners.
func TestFiveBrokersAreAsOne(t *testing.T) {
	tier.Full(t)
	buildAll(t)
	s := seed(t)
	f := newFleet(t, s)
	n := &nemesis{fleet: f, done: map[string]int{}}
	faults := cmp.Or(*faultsFlag, shortRun)
	began := time.Now()
	sum := map[model.Kind]map[model.Outcome]int{}
	subjects, takeovers := 0, 0
	for number := 0; n.count() < faults && !t.Failed(); number++ {
		calm := number%2 == 0
		of := stormFaults
		if calm {
			of = calmFaults
		}
		r := f.play(n, s, number, min(of, faults-n.count()), calm)
		subjects += len(r.sessions) + len(r.frugal) + len(r.keys)
		takeovers += r.takeovers
		for kind, outcomes := range r.outcomes {
			if sum[kind] == nil {
				sum[kind] = map[model.Outcome]int{}
			}
			for outcome, times := range outcomes {
				sum[kind][outcome] += times
			}
		}
		t.Logf("%s: %d faults", time.Since(began).Round(time.Second), n.count())
	}
	t.Logf("%d faults in %s:\n%s", n.count(), time.Since(began).Round(time.Second), n)
	t.Logf("%d histories; %d sessions began anew elsewhere; brokers may have counted as dead %s", subjects, takeovers, f.deaths())
	for _, kind := range slices.Sorted(maps.Keys(sum)) {
		t.Logf("%s: %v", kind, sum[kind])
	}
}
