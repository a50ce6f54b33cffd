package placement_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/placement"
)

// others are peers that say the same until somebody changes it.
type others struct {
	all   []placement.Published
	err   error
	looks int
}

func (o *others) Loads(context.Context) ([]placement.Published, error) {
	o.looks++
	return o.all, o.err
}

// fixture is a placer in a context that lets it place.
type fixture struct {
	*placement.Placer
	*others
	own placement.Own
	ctx context.Context
}

func start(t *testing.T, own placement.Load, peers map[string]placement.Load) *fixture {
	t.Helper()
	f := &fixture{others: &others{}, ctx: peer.WithPlacing(t.Context(), true)}
	f.own = placement.Own{Load: own, Probed: map[string]time.Time{"local": time.Unix(1, 0)}}
	for id, l := range peers {
		f.all = append(f.all, placement.Published{Peer: placement.Peer{Peer: peer.Peer{ID: id, Address: id + ":1"}, Load: l}, At: time.Unix(1, 0)})
	}
	f.Placer = placement.NewPlacer(placement.Options{Peers: f.others, Own: func() placement.Own { return f.own }, Logger: hclog.NewNullLogger()})
	return f
}

// place returns who gets a new session; "" is this broker.
func (f *fixture) place(t *testing.T) string {
	t.Helper()
	err := f.Place(f.ctx, placement.Need{Provider: "local", Template: "base"})
	if err == nil {
		return ""
	}
	assert.Assert(t, peer.WasPlaced(err), "%v", err)
	to, _ := peer.Of(err)
	return to.ID
}

func TestNobodyIsAskedWhereThereIsNothingBetter(t *testing.T) {
	f := start(t, load(), map[string]placement.Load{"p": load()})
	assert.Equal(t, f.place(t), "")
	assert.Equal(t, f.looks, 0)
	f = start(t, load(inCloud(7)), map[string]placement.Load{"p": load(inCloud(0))})
	assert.Equal(t, f.place(t), "")
	assert.Equal(t, f.looks, 0)
}

func TestWhatIsGivenCountsUntilTheNextWord(t *testing.T) {
	// One warm sandbox here, and one there: whoever comes then finds none, and stays.
	f := start(t, load(), map[string]placement.Load{"p": load()})
	assert.Equal(t, f.place(t), "")
	assert.Equal(t, f.place(t), "p")
	assert.Equal(t, f.place(t), "")
	f.all[0].At = time.Unix(2, 0)
	assert.Equal(t, f.place(t), "p", "it has one again")
	f.own.Probed = map[string]time.Time{"local": time.Unix(2, 0)}
	assert.Equal(t, f.place(t), "", "this one too")
	// Room there is counted down as well.
	f = start(t, load(draining), map[string]placement.Load{"p": load(using(8)), "q": load(using(7), cold)})
	got := map[string]int{}
	for range 6 {
		got[f.place(t)]++
	}
	assert.DeepEqual(t, got, map[string]int{"p": 2, "q": 3, "": 1})
}

func TestWhatIsToStayIsNotPlaced(t *testing.T) {
	f := start(t, load(draining), map[string]placement.Load{"p": load()})
	assert.Equal(t, f.place(t), "p")
	f.ctx = t.Context()
	assert.Equal(t, f.place(t), "", "nobody has said that it may be")
	f.ctx = peer.WithPlacing(peer.WithPlacing(t.Context(), true), false)
	assert.Equal(t, f.place(t), "")
}

func TestItStaysWhereNothingIsKnownOfOthers(t *testing.T) {
	f := start(t, load(draining, full), map[string]placement.Load{"p": load()})
	f.all, f.err = nil, errors.New("the database is away")
	assert.Equal(t, f.place(t), "")
}
