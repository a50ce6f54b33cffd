package placement

import (
	"cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
)

// Load is what a broker says of itself to the others.
type Load struct {
	// Draining brokers get nothing new.
	Draining bool `json:"draining,omitempty"`
	// Zone is where it is; brokers of one zone are near each other.
	Zone string `json:"zone,omitempty"`
	// Weight is how much it gets beside others with the same room; 0 for nothing that others
	// pass on.
	Weight float64 `json:"weight"`
	// Providers by label.
	Providers map[string]Capacity `json:"providers,omitempty"`
}

// Capacity is what a broker has of one provider.
type Capacity struct {
	// Ready says that it makes sandboxes now.
	Ready bool `json:"ready,omitempty"`
	// Warm sandboxes that wait to be used, by template.
	Warm map[string]int `json:"warm,omitempty"`
	// Max is how many there may be on this broker's machine; 0 for any number, as in clouds.
	Max int `json:"max,omitempty"`
	// Used are those that there are, and those that are being made.
	Used int `json:"used,omitempty"`
}

// Need is what a new session asks for, in the words of the provider that would be asked.
type Need struct{ Provider, Template string }

// Peer is another broker with what it has published.
type Peer struct {
	peer.Peer
	Load
}

// Choose decides where a new session goes: to a peer, or with ok false to this broker itself,
// which has its own load. What is better comes first in this order:
//
//   - a broker that does not drain and has room;
//   - this one, though it drains, if it has room: nothing is refused that could be answered;
//   - a broker that does not drain, where the session waits for room.
//
// Among equals one in this broker's zone comes first, then one with a warm sandbox, then this
// one, and then the one with the most room, by weight.
func Choose(self Load, peers []Peer, need Need) (best Peer, ok bool) {
	most := self.rank(self, need)
	for _, p := range peers {
		if p.Draining || p.Weight <= 0 {
			continue
		}
		r := p.rank(self, need)
		switch order := r.compare(most); {
		case order > 0, order == 0 && ok && p.share(need) > best.share(need):
			best, most, ok = p, r, true
		}
	}
	return best, ok
}

// rank is how well a broker suits, the most important first.
type rank [3]int

func (l Load) rank(self Load, need Need) (r rank) {
	room := l.Providers[need.Provider].room() > 0
	switch {
	case room && !l.Draining:
		r[0] = 3
	case room:
		r[0] = 2
	case !l.Draining:
		r[0] = 1
	}
	if l.Zone == self.Zone {
		r[1] = 1
	}
	if room && l.Providers[need.Provider].Warm[need.Template] > 0 {
		r[2] = 1
	}
	return r
}

func (r rank) compare(other rank) int {
	for i := range r {
		if order := cmp.Compare(r[i], other[i]); order != 0 {
			return order
		}
	}
	return 0
}

// unbounded is the room where there is no bound: more than any that there is.
const unbounded = 1 << 20

// room is for how many more there is room.
func (c Capacity) room() int {
	switch {
	case !c.Ready:
		return 0
	case c.Max == 0:
		return unbounded
	default:
		return max(0, c.Max-c.Used)
	}
}

// share orders peers that suit equally: by the room that they have; where there is no bound, by
// how much they have already.
func (p Peer) share(need Need) float64 {
	c := p.Providers[need.Provider]
	if c.Max == 0 {
		return p.Weight / float64(1+c.Used)
	}
	return p.Weight * float64(c.room())
}
