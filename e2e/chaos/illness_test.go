package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
)

// illness is a reason to ask another provider.
type illness struct {
	Name string
	// Down refuses connections.
	Down bool
	Lies cloud.Lies
}

var (
	well      = illness{Name: "well"}
	down      = illness{Name: "down", Down: true}
	illnesses = []illness{
		down, down, down, // it is what others end in
		{Name: "full", Lies: cloud.Lies{Share: 0.8, Kinds: []cloud.Lie{cloud.Full}, Creations: true}},
		{Name: "fails", Lies: cloud.Lies{Share: 0.6, Kinds: []cloud.Lie{cloud.FailBefore, cloud.FailAfter}}},
		{Name: "breaks connections", Lies: cloud.Lies{Share: 0.6, Kinds: []cloud.Lie{cloud.ResetBefore, cloud.ResetAfter}}},
		{Name: "takes for ever", Lies: cloud.Lies{Share: 0.4, Kinds: []cloud.Lie{cloud.HangBefore, cloud.HangAfter}, Creations: true}},
		{Name: "kills", Lies: cloud.Lies{Share: 0.3, Kinds: []cloud.Lie{cloud.KillBefore, cloud.KillAfter}, Creations: true}},
		{Name: "fails and lists late", Lies: cloud.Lies{
			Share: 0.6, Kinds: []cloud.Lie{cloud.FailBefore, cloud.FailAfter, cloud.ResetAfter}, Creations: true,
			ListLate: lateness, DeleteLate: lateness,
		}},
		{Name: "everything", Lies: cloud.Lies{Share: 0.5, Kinds: allLies, ListLate: lateness, DeleteLate: lateness}},
	}
)

// slowness is how long the broker may die in the middle of a creation.
const slowness = 200 * time.Millisecond

// stage is what goes on up to a blow, and the blow.
type stage struct {
	Blow blow
	// Points are those of a broker that is started by the blow: half of them kill
	// themselves before the next one.
	Points string
	// Ill is how each of the clouds is.
	Ill []illness
}

// stages draws what clouds suffer: one is ill, and now and then another one too. It
// depends on the seed alone.
func stages(random *rand.Rand, kills int, labels []string) []stage {
	all := make([]stage, 0, kills)
	for _, b := range schedule(random, kills) {
		b.After *= 2 // an illness takes time to show
		b.Of = append(slices.Clone(labels), "")[random.IntN(len(labels)+1)]
		ill, chosen := make([]illness, len(labels)), random.IntN(len(labels))
		for c := range ill {
			ill[c] = well
			if c == chosen || random.IntN(5) == 0 {
				ill[c] = illnesses[random.IntN(len(illnesses))]
			}
			ill[c].Lies.Slow = slowness
		}
		points := ""
		if random.IntN(2) == 0 {
			point := failpoint.All()[random.IntN(len(failpoint.All()))]
			points = fmt.Sprintf("%s=kill:%d", point, 1+random.IntN(mostHits))
		}
		all = append(all, stage{b, points, ill})
	}
	return all
}

// suffer has the clouds be as they shall.
func (w *world) suffer(ill []illness) {
	w.t.Helper()
	for i, c := range w.clouds {
		c.SetLies(ill[i].Lies)
		w.listsGone = w.listsGone || ill[i].Lies.DeleteLate > 0
		if ill[i].Down {
			c.Down()
		} else {
			assert.NilError(w.t, c.Up())
		}
	}
}

// heal makes all clouds well.
func (w *world) heal() {
	w.t.Helper()
	w.suffer(slices.Repeat([]illness{well}, len(w.clouds)))
}

// endure goes through a stage, and returns how many died: by the blow, and by itself
// before, when there has been a point to do so.
func (w *world) endure(st stage) (deaths int) {
	w.t.Helper()
	w.suffer(st.Ill)
	lull, stop := context.WithTimeout(context.Background(), st.Blow.After)
	defer stop()
	select {
	case <-w.dead():
		deaths++
		w.start("")
		w.waitServing()
		<-lull.Done()
	case <-lull.Done():
	}
	now := st.Blow
	now.After = 0
	w.wound(now, st.Points)
	w.waitServing()
	return deaths + 1
}
