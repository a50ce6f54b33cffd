package routing

import (
	"cmp"
	"slices"
	"time"
)

const (
	// readyPatience is how long a provider that is starting is waited for where
	// another one is ready.
	readyPatience = time.Second
	// readyShare is the part of the time for a creation that is waited for a provider to
	// be ready. The rest is for the creation: one that has hardly begun when its time is
	// over would leave its session waiting for what may be there.
	readyShare = 0.9
)

// Wait is how long a request waits for one provider to be ready.
type Wait struct {
	began, most, grace time.Time
	others             bool
}

// NewWait begins a wait of a request that has limit for its creation. others says that
// other providers may be asked. Until grace the provider is waited for although another
// one is ready; the zero time is no grace.
func NewWait(began time.Time, limit time.Duration, others bool, grace time.Time) Wait {
	return Wait{began: began, most: began.Add(time.Duration(float64(limit) * readyShare)), others: others, grace: grace}
}

// Next says until when the provider is waited for, where that another one is ready is as
// it is now, and when it is to be looked again whether it is: that may be otherwise in a
// moment. well says that the provider is to be well by then, and not only there: as long
// as it has its grace.
func (w Wait) Next(now time.Time, anotherIsReady func() bool) (until, look time.Time, well bool) {
	until, look = w.most, w.most
	if w.others {
		if anotherIsReady() {
			until = earlier(w.most, later(w.began.Add(readyPatience), w.grace))
		}
		look = earlier(until, now.Add(readyPatience))
	}
	return until, look, !look.After(w.grace)
}

// First is the candidate that is asked first, as long as nothing is known of how they do:
// the cheapest where the policy says so.
func (o Offer) First(candidates []Provider) Provider {
	if o.Policy == Cheapest {
		return slices.MinFunc(candidates, func(a, b Provider) int { return cmp.Compare(o.Costs[a.Label()], o.Costs[b.Label()]) })
	}
	return candidates[0]
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
