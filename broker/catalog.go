package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// catalog says what requests go by: the generation that is in force. It also knows
// the revisions before it that still have instances. It is empty until the first
// generation is set.
type catalog struct {
	inForce atomic.Pointer[generation]
	// router knows how the providers have done, whatever the generation.
	router *routing.Router

	mu       sync.Mutex // of writers
	draining []*revision
	// bequeathed are those that have ended and whose instances others serve.
	bequeathed []*revision
}

var _ instance.Catalog = (*catalog)(nil)

// generation returns the one in force, an empty one before the first.
func (c *catalog) generation() *generation {
	if g := c.inForce.Load(); g != nil {
		return g
	}
	return &generation{}
}

// Active is the label of the provider that is used unless a request names one.
func (c *catalog) Active() string {
	if g := c.generation(); g.cfg != nil {
		return g.cfg.ActiveProvider
	}
	return ""
}

// Providers implements instance.Catalog.
func (c *catalog) Providers() []instance.Provider { return c.generation().offered }

// Offer implements instance.Catalog: all of it is of one generation.
func (c *catalog) Offer(who tenant.Tenant) instance.Offer {
	g := c.generation()
	offer := instance.Offer{Providers: g.offered, Tenant: who}
	if g.cfg != nil {
		offer.Active, offer.Fallback = g.cfg.ActiveProvider, g.cfg.FallbackProviders
		offer.Policy, offer.Costs = routing.Policy(g.cfg.RoutingPolicy), g.costs
		offer.Patience = instance.Patience{
			Start: g.cfg.FailOver.StartGrace, Full: g.cfg.FailOver.SpillAfter, Unclear: g.cfg.FailOver.UnclearTimeout,
		}
		if now, ok := g.tenants.Tenant(who.Name); ok {
			offer.Tenant = now
			offer.Removed = now.Since != who.Since
		} else {
			offer.Removed = true
		}
	}
	return offer
}

// Authenticate implements api.Tenants.
func (c *catalog) Authenticate(token string) (tenant.Tenant, bool) {
	if g := c.generation(); g.tenants != nil {
		return g.tenants.Authenticate(token)
	}
	return tenant.Tenant{}, false
}

// set puts a generation in force. What it no longer has drains from now on.
func (c *catalog) set(g *generation) (replaced []*revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range c.generation().current {
		if !slices.Contains(g.current, old) {
			replaced = append(replaced, old)
		}
	}
	c.draining = slices.Concat(c.draining, replaced)
	c.inForce.Store(g)
	return replaced
}

// remove forgets a revision that has drained.
func (c *catalog) remove(old *revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = slices.DeleteFunc(slices.Clone(c.draining), func(r *revision) bool { return r == old })
}

// stop ends all plugins, side by side.
func (c *catalog) stop(ctx context.Context) {
	c.mu.Lock()
	all := slices.Concat(c.generation().current, c.draining)
	c.mu.Unlock()
	stopAll(ctx, all)
}

// states are what the metrics say of the providers.
func (c *catalog) states() []metrics.Provider {
	c.mu.Lock()
	current, draining := c.generation().current, c.draining
	c.mu.Unlock()
	var states []metrics.Provider
	for _, r := range current {
		state := r.State()
		earlier := 0
		for _, old := range draining {
			if old.Label() == r.Label() {
				earlier++
			}
		}
		standing := c.router.Standing(r.Label())
		states = append(states, metrics.Provider{
			CreationCircuitOpen: standing.Circuit != routing.Closed, Creation: standing.Creation,
			Label: r.Label(), Plugin: r.Description().Name,
			Ready: state.Healthy, Restarts: state.Restarts, Draining: earlier, Metrics: state.Metrics,
			CircuitOpen: state.Phase == pluginhost.PhaseUnavailable, FailedAt: state.FailedAt,
		})
	}
	for _, old := range draining {
		at := slices.IndexFunc(states, func(p metrics.Provider) bool { return p.Label == old.Label() })
		switch {
		case at < 0: // it was removed from the configuration
			states = append(states, metrics.Provider{Label: old.Label(), Removed: true, Draining: 1})
		case states[at].Removed:
			states[at].Draining++
		}
	}
	return states
}
