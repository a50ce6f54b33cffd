package instance

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// StateUnavailable is the Status.State of a provider that has failed repeatedly: it is
// waited for no longer.
const StateUnavailable = "unavailable"

// wellAwaiter is a provider that can be waited for until it answers a health probe well.
type wellAwaiter interface {
	// AwaitWell waits until then, and gives up at once on one that is unavailable.
	AwaitWell(ctx context.Context) error
}

// Awaited is the provider that requests wait for after the start of the broker, although
// another one could serve.
type Awaited struct {
	ProviderInfo
	// Until is when they go elsewhere.
	Until time.Time
}

// Awaited says which provider requests wait for at this moment, since the broker has
// just begun.
func (s *Service) Awaited() (Awaited, bool) {
	offer := s.catalog.Offer(tenant.Tenant{})
	candidates := offer.Candidates(offer.Providers)
	if len(candidates) < 2 {
		return Awaited{}, false
	}
	first := candidates[0]
	if offer.Policy == routing.Cheapest {
		first = slices.MinFunc(candidates, func(a, b Provider) int { return cmp.Compare(offer.Costs[a.Label()], offer.Costs[b.Label()]) })
	}
	until := s.providers.graceOf(offer)
	if status := first.Status(); status.Ready || status.State == StateUnavailable || !time.Now().Before(until) {
		return Awaited{}, false
	}
	return Awaited{ProviderInfo: describe(first, offer.Active), Until: until}, true
}

// graceOf is when requests stop to wait for the provider that is asked first.
func (p *providers) graceOf(offer Offer) time.Time { return p.started.Add(offer.Patience.Start) }
