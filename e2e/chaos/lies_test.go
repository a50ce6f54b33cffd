package chaos_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// liesTime is how long the cloud lies to one broker.
const liesTime = 4 * time.Second

// TestACloudThatLiesLosesAndDoublesNothing has the cloud answer wrongly in every way,
// while plugin and broker are killed now and then.
func TestACloudThatLiesLosesAndDoublesNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, lies := range map[string]cloud.Lies{
		"fails":                 {Share: 0.2, Kinds: []cloud.Lie{cloud.FailBefore, cloud.FailAfter}},
		"breaks connections":    {Share: 0.2, Kinds: []cloud.Lie{cloud.ResetBefore, cloud.ResetAfter}},
		"takes for ever":        {Share: 0.1, Kinds: []cloud.Lie{cloud.HangBefore, cloud.HangAfter}},
		"is full":               {Share: 0.3, Kinds: []cloud.Lie{cloud.Full}},
		"lists late":            {ListLate: lateness, DeleteLate: lateness},
		"fails and lists late":  {Share: 0.2, Kinds: []cloud.Lie{cloud.FailBefore, cloud.FailAfter, cloud.ResetAfter}, ListLate: lateness},
		"lies in all ways":      {Share: 0.2, Kinds: allLies, ListLate: lateness, DeleteLate: lateness},
		"knows no keys of ours": {Share: 0.2, Kinds: allLies, NoKeys: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seed(t)
			w := newWorld(t, s, options{})
			w.start("")
			w.waitReady()
			w.cloud.SetLies(lies)
			w.listsGone = lies.DeleteLate > 0
			clients := w.letLoose()
			pause(t.Context(), liesTime/2)
			w.strike(blow{Broker: true})
			pause(t.Context(), liesTime/2)
			w.cloud.SetLies(cloud.Lies{NoKeys: lies.NoKeys})
			clients.end()
			if slices.Contains(lies.Kinds, cloud.KillBefore) {
				w.restart() // a plugin that dies again and again is left alone for half a minute
			}
			w.settle()
			w.check()
			w.restart()
			w.settle()
			t.Logf("%v: %+v", w.cloud.Told(), w.check())
		})
	}
}

// lateness is how late the list of the cloud may be: less than the broker allows for
// at the haste of these tests.
const lateness = 300 * time.Millisecond

var allLies = []cloud.Lie{cloud.FailBefore, cloud.FailAfter, cloud.ResetBefore, cloud.ResetAfter, cloud.HangBefore, cloud.HangAfter, cloud.Full, cloud.KillBefore, cloud.KillAfter}
