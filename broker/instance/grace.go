package instance

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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
	candidates := offer.candidates(offer.Providers)
	if len(candidates) < 2 {
		return Awaited{}, false
	}
	first := candidates[0]
	if offer.Policy == routing.Cheapest {
		first = slices.MinFunc(candidates, func(a, b Provider) int { return cmp.Compare(offer.Costs[a.Label()], offer.Costs[b.Label()]) })
	}
	until := s.graceOf(offer)
	if status := first.Status(); status.Ready || status.State == StateUnavailable || !time.Now().Before(until) {
		return Awaited{}, false
	}
	return Awaited{ProviderInfo: describe(first, offer.Active), Until: until}, true
}

// graceOf is when requests stop to wait for the provider that is asked first.
func (s *Service) graceOf(offer Offer) time.Time { return s.started.Add(offer.Patience.Start) }

// awaitProvider waits until the provider is ready: a moment where another one is, after
// the start of the broker for the one that is asked first as long as its grace, and else
// for most of limit.
func (r *route) awaitProvider(ctx context.Context, p Provider, limit time.Duration, others, first bool) (sdk.Provider, error) {
	s, began := r.service, time.Now()
	most := began.Add(time.Duration(float64(limit) * readyShare))
	for {
		until, end, grace := most, most, time.Time{}
		if others {
			if first {
				grace = s.graceOf(r.offer)
			}
			if r.anotherIsReady(p) {
				until = earlier(most, later(began.Add(readyPatience), grace))
			}
			// Whether another one is ready may be otherwise in a moment.
			end = earlier(until, time.Now().Add(readyPatience))
		}
		ready, err := s.waitReady(ctx, p, time.Until(end), !end.After(grace))
		if !errors.Is(err, errNotInTime) {
			return ready, err
		}
		if !time.Now().Before(until) {
			return nil, sdk.Errorf(sdk.CodeUnavailable, "provider %q was not ready within %s", p.Label(), until.Sub(began).Round(time.Millisecond))
		}
	}
}
