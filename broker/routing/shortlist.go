package routing

import (
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Orderer puts providers in order and knows which of them may be asked; Router is it.
type Orderer interface {
	Order(policy Policy, candidates []Candidate) []Choice
	Enter(label string, well bool) (may, trial bool)
}

// Shortlist are the providers that one request may still ask. The zero value is empty; it
// is used by one goroutine.
type Shortlist struct {
	filled bool
	order  []Choice
	// passed are those in the order whose circuits are open; they come last.
	passed []string
	// tried are those that could not serve.
	tried []Tried
	// full is the first that had no room and was not waited for.
	full *Choice
}

// Fill puts the candidates in the order of the policy, unless that was done since the last
// Forget. Those that were tried are not asked again.
func (s *Shortlist) Fill(by Orderer, offer Offer, candidates []Provider) {
	if s.filled {
		return
	}
	s.filled, s.passed = true, nil
	if len(candidates) == 1 {
		reason := ReasonActive
		if candidates[0].Label() != offer.Active {
			reason = ReasonAllowed
		}
		s.order = []Choice{{Label: candidates[0].Label(), Reason: reason}}
	} else {
		var list []Candidate
		for _, c := range candidates {
			list = append(list, Candidate{Label: c.Label(), Cost: offer.Costs[c.Label()]})
		}
		s.order = by.Order(offer.Policy, list)
	}
	s.order = slices.DeleteFunc(s.order, func(c Choice) bool { return s.WasTried(c.Label) })
}

// Forget drops the order: the configuration has changed, or what was known of the
// providers. What was tried stays.
func (s *Shortlist) Forget() { s.filled = false }

// Next returns the provider to ask now: the first in the order whose circuit is not open,
// or may be tried. Where all are open, the first of them is asked all the same: others
// cannot be worse. When nobody else is left, the one that was full is worth the wait. It
// returns false when there is nobody to ask.
func (s *Shortlist) Next(by Orderer, providers []Provider, several bool) (choice Choice, trial, ok bool) {
	if len(s.order) == 0 {
		if s.full == nil {
			return Choice{}, false, false
		}
		full := *s.full
		s.order, s.full = []Choice{full}, nil
		s.tried = slices.DeleteFunc(s.tried, func(t Tried) bool { return t.Provider == full.Label })
	}
	if !several {
		return s.order[0], false, true
	}
	for {
		choice := s.order[0]
		if slices.Contains(s.passed, choice.Label) {
			s.passed = slices.DeleteFunc(s.passed, func(label string) bool { return label == choice.Label })
			return choice, false, true
		}
		p := Labelled(providers, choice.Label)
		if may, trial := by.Enter(choice.Label, p != nil && p.Status().Ready); may {
			return choice, trial, true
		}
		s.passed = append(s.passed, choice.Label)
		s.order = append(s.order[1:], choice)
	}
}

// Strike takes down that a provider could not serve, and why. One that was full is asked
// again when nobody else can serve.
func (s *Shortlist) Strike(label string, code sdk.Code, full bool) {
	if len(s.tried) < MaxTried && !s.WasTried(label) {
		s.tried = append(s.tried, Tried{Provider: label, Code: code})
	}
	i := slices.IndexFunc(s.order, func(c Choice) bool { return c.Label == label })
	if i < 0 {
		return
	}
	if full && s.full == nil {
		choice := s.order[i]
		s.full = &choice
	}
	s.order = slices.Delete(slices.Clone(s.order), i, i+1)
}

// WasTried reports whether a provider could not serve.
func (s *Shortlist) WasTried(label string) bool {
	return slices.ContainsFunc(s.tried, func(t Tried) bool { return t.Provider == label })
}

// Untouched reports whether no provider was tried or passed over.
func (s *Shortlist) Untouched() bool { return len(s.tried)+len(s.passed) == 0 }

// HasOthers reports whether more than the next one may be asked.
func (s *Shortlist) HasOthers() bool { return len(s.order) > 1 || s.full != nil }

// AnotherIsReady reports whether one of the others takes work now.
func (s *Shortlist) AnotherIsReady(providers []Provider, than Provider) bool {
	return slices.ContainsFunc(providers, func(p Provider) bool {
		may := s.full != nil && s.full.Label == p.Label() || slices.ContainsFunc(s.order, func(c Choice) bool { return c.Label == p.Label() })
		return may && p.Label() != than.Label() && p.Status().Ready
	})
}

// Placed says why a provider serves, and which could not. chosen means that it is of the
// shortlist.
func (s *Shortlist) Placed(reason string, chosen bool) Placement {
	placed := Placement{Reason: reason, Tried: slices.Clone(s.tried)}
	for _, label := range s.passed {
		placed.Tried = append(placed.Tried, Tried{Provider: label, Code: sdk.CodeUnavailable})
	}
	if chosen && len(placed.Tried) > 0 {
		placed.Reason = ReasonFallback
	}
	return placed
}

// TriedBeside are those that could not serve, without one.
func (s *Shortlist) TriedBeside(label string) []Tried {
	return slices.DeleteFunc(slices.Clone(s.tried), func(t Tried) bool { return t.Provider == label })
}
