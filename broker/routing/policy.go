package routing

import (
	"cmp"
	"slices"
)

// Policy says by what providers are ordered.
type Policy string

// The policies.
const (
	// Ordered is the order of the configuration.
	Ordered Policy = "ordered"
	// Cheapest puts those first whose instances cost least.
	Cheapest Policy = "cheapest"
	// Fastest puts those first whose creations took least time of late.
	Fastest Policy = "fastest"
)

// Reasons why a provider serves, as callers read them. Those of the policies
// Cheapest and Fastest are their names.
const (
	// ReasonActive: it is the first in the order of the configuration.
	ReasonActive = "active"
	// ReasonAllowed: it is the first that the tenant may use, which is not the active
	// one.
	ReasonAllowed = "allowed"
	// ReasonExploration: it was not asked for a while, and may have become fast.
	ReasonExploration = "exploration"
	// ReasonRequested: the request names it.
	ReasonRequested = "requested"
	// ReasonSession: the session's instance lives there.
	ReasonSession = "session"
	// ReasonFallback: those before it could not serve.
	ReasonFallback = "fallback"
)

// Candidate is a provider that may be asked.
type Candidate struct {
	Label string
	// Cost of a second of an instance's life.
	Cost float64
}

// Choice is a place in an order.
type Choice struct {
	Label string
	// Reason is why it is the first, if it is.
	Reason string
}

// exploreEvery is how many orders by speed there are for each that begins with
// another provider than the fastest.
const exploreEvery = 20

// Order puts the candidates, which come in the order of the configuration, in that
// of the policy. Where the policy makes no difference their order stays.
func (r *Router) Order(policy Policy, candidates []Candidate) []Choice {
	order := slices.Clone(candidates)
	reason := ReasonActive
	switch policy {
	case Cheapest:
		reason = string(Cheapest)
		slices.SortStableFunc(order, func(a, b Candidate) int { return cmp.Compare(a.Cost, b.Cost) })
	case Fastest:
		reason = r.bySpeed(order)
	}
	choices := make([]Choice, 0, len(order))
	for _, c := range order {
		choices = append(choices, Choice{Label: c.Label, Reason: reason})
	}
	return choices
}

// bySpeed sorts the candidates in place. One that was never measured comes first,
// so that it is; now and then, the one whose measure is the oldest.
func (r *Router) bySpeed(order []Candidate) (reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(order, func(a, b Candidate) int {
		return cmp.Compare(r.provider(a.Label).average, r.provider(b.Label).average)
	})
	r.orders++
	if r.orders%exploreEvery != 0 || len(order) < 2 {
		return string(Fastest)
	}
	oldest := 1
	for i := 2; i < len(order); i++ {
		if r.provider(order[i].Label).measured.Before(r.provider(order[oldest].Label).measured) {
			oldest = i
		}
	}
	explored := order[oldest]
	copy(order[1:oldest+1], order[:oldest])
	order[0] = explored
	return ReasonExploration
}
