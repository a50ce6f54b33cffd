package placement

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
)

// Peers lists the other brokers that live and have published a load just now.
type Peers interface {
	Loads(ctx context.Context) ([]Published, error)
}

// Published is the load of a peer, and when the database got it.
type Published struct {
	Peer
	At time.Time
}

// Own is the load of this broker, as it knows it without asking anybody. Probed changes with
// each time that its providers were asked.
type Own struct {
	Load
	Probed map[string]time.Time
}

// Options of a Placer.
type Options struct {
	Peers Peers
	// Own returns the load of this broker. It is asked for each new session, and waits for
	// nothing.
	Own    func() Own
	Logger hclog.Logger
}

// Placer says where new sessions go. Its methods may be called concurrently.
type Placer struct {
	opts Options

	mu sync.Mutex
	// given is what brokers got since they have said what they have.
	given map[holder]given
}

// holder is a provider of a broker; "" is this one.
type holder struct{ broker, provider string }

// given is what it got since then, by template.
type given struct {
	since time.Time
	count map[string]int
}

// NewPlacer returns a placer that needs no end.
func NewPlacer(opts Options) *Placer { return &Placer{opts: opts, given: map[holder]given{}} }

// lookTimeout bounds a look at what the peers have published.
const lookTimeout = time.Second

// Place returns a peer.ElsewhereError for a new session that a peer is to make, and nil for one
// that this broker makes itself. A call that is to stay here (peer.MayPlace) does.
func (p *Placer) Place(ctx context.Context, need Need) error {
	own := p.opts.Own()
	self := p.less("", own.Probed[need.Provider], own.Load, need, false)
	if _, elsewhere := Choose(self, p.ideal(self, need), need); !elsewhere || !peer.MayPlace(ctx) {
		p.give("", own.Probed[need.Provider], need)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	all, err := p.opts.Peers.Loads(ctx)
	if err != nil { // so it is as where there are no others
		p.opts.Logger.Warn("what other brokers have is not known, so a new session stays here", "error", err)
	}
	peers, at := make([]Peer, 0, len(all)), map[string]time.Time{}
	for _, published := range all {
		published.Load = p.less(published.ID, published.At, published.Load, need, true)
		peers, at[published.ID] = append(peers, published.Peer), published.At
	}
	best, elsewhere := Choose(self, peers, need)
	if !elsewhere {
		p.give("", own.Probed[need.Provider], need)
		return nil
	}
	p.give(best.ID, at[best.ID], need)
	return peer.Placed(best.Peer)
}

// Load is what this broker has, for others: without what it got since its providers were asked.
func (p *Placer) Load() Load {
	own := p.opts.Own()
	load := own.Load
	for label := range own.Providers {
		load = p.less("", own.Probed[label], load, Need{Provider: label}, false)
	}
	return load
}

// ideal is a peer than which there is no better one: where this broker itself comes before it,
// nobody need be asked.
func (p *Placer) ideal(self Load, need Need) []Peer {
	c := Capacity{Ready: true}
	if self.Providers[need.Provider].Warm != nil { // else it keeps none warm, on no broker
		c.Warm = map[string]int{need.Template: 1}
	}
	return []Peer{{Load: Load{Zone: self.Zone, Weight: 1, Providers: map[string]Capacity{need.Provider: c}}}}
}

// less is a load without what the broker got since it has said it. used says that its count of
// what it has is as old as the rest.
func (p *Placer) less(id string, since time.Time, load Load, need Need, used bool) Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.given[holder{id, need.Provider}]
	c, known := load.Providers[need.Provider]
	if !known || !got.since.Equal(since) {
		return load
	}
	load.Providers, c.Warm = maps.Clone(load.Providers), maps.Clone(c.Warm)
	for template, n := range got.count {
		if warm := c.Warm[template]; warm > 0 {
			c.Warm[template] = max(0, warm-n)
		}
		if used {
			c.Used += n
		}
	}
	load.Providers[need.Provider] = c
	return load
}

// give notes that a broker gets a session.
func (p *Placer) give(id string, since time.Time, need Need) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := holder{id, need.Provider}
	got := p.given[at]
	if got.count == nil || !got.since.Equal(since) {
		got = given{since: since, count: map[string]int{}}
	}
	got.count[need.Template]++
	p.given[at] = got
}
