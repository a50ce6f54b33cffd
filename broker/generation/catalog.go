package generation

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Catalog says what requests go by: the generation that is in force. It also knows
// the revisions before it that still have instances. It is empty until the first
// generation is set.
type Catalog struct {
	inForce atomic.Pointer[Generation]
	// Router knows how the providers have done, whatever the generation.
	Router *routing.Router
	// Built finds what the templates of the configuration were built to; nil for a broker
	// that builds none.
	Built func(provider, name string) (sdk.BuiltTemplate, bool, error)

	mu       sync.Mutex // of writers
	draining []*Revision
	// succeeded are those that have ended and whose instances others serve.
	succeeded []*Revision
}

var _ instance.Catalog = (*Catalog)(nil)

// InForce returns the one in force, an empty one before the first.
func (c *Catalog) InForce() *Generation {
	if g := c.inForce.Load(); g != nil {
		return g
	}
	return &Generation{}
}

// Active is the label of the provider that is used unless a request names one.
func (c *Catalog) Active() string {
	if g := c.InForce(); g.Config != nil {
		return g.Config.ActiveProvider
	}
	return ""
}

// Providers implements instance.Catalog.
func (c *Catalog) Providers() []instance.Provider { return c.InForce().offered }

// Offer implements instance.Catalog: all of it is of one generation.
func (c *Catalog) Offer(who tenant.Tenant) instance.Offer {
	g := c.InForce()
	offer := instance.Offer{Providers: g.offered, Tenant: who}
	if g.Config != nil {
		offer.Active, offer.Fallback = g.Config.ActiveProvider, g.Config.FallbackProviders
		offer.Policy, offer.Costs = routing.Policy(g.Config.RoutingPolicy), g.costs
		offer.Patience = instance.Patience{
			Start: g.Config.FailOver.StartGrace, Full: g.Config.FailOver.SpillAfter, Unclear: g.Config.FailOver.UnclearTimeout,
		}
		if now, ok := g.tenants.Tenant(who.Name); ok {
			offer.Tenant = now
			offer.Removed = now.Since != who.Since
			offer.Templates = c.templatesFor(g, now.Name)
		} else {
			offer.Removed = true
		}
	}
	return offer
}

// templatesFor finds the templates of a generation that a tenant may use.
func (c *Catalog) templatesFor(g *Generation, tenant string) routing.Templates {
	if c.Built == nil || len(g.Config.Templates) == 0 {
		return nil
	}
	return func(provider, name string) (routing.Template, bool, error) {
		at := slices.IndexFunc(g.Config.Templates, func(t config.Template) bool { return t.Name == name && t.For(tenant) })
		if at < 0 {
			return routing.Template{}, false, nil
		}
		built, known, err := c.Built(provider, name)
		of := g.Config.Templates[at]
		return routing.Template{BuiltTemplate: built, MemoryMB: of.MemoryMB, CPUs: of.CPUs}, known, err
	}
}

// Authenticate implements api.Tenants.
func (c *Catalog) Authenticate(token string) (tenant.Tenant, bool) {
	if g := c.InForce(); g.tenants != nil {
		return g.tenants.Authenticate(token)
	}
	return tenant.Tenant{}, false
}

// Tenant returns the tenant of that name.
func (c *Catalog) Tenant(name string) (tenant.Tenant, bool) {
	if g := c.InForce(); g.tenants != nil {
		return g.tenants.Tenant(name)
	}
	return tenant.Tenant{}, false
}

// Set puts a generation in force. What it no longer has drains from now on.
func (c *Catalog) Set(g *Generation) (replaced []*Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range c.InForce().Current {
		if !slices.Contains(g.Current, old) {
			replaced = append(replaced, old)
		}
	}
	c.draining = slices.Concat(c.draining, replaced)
	c.inForce.Store(g)
	return replaced
}

// remove forgets a revision that has drained.
func (c *Catalog) remove(old *Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = slices.DeleteFunc(slices.Clone(c.draining), func(r *Revision) bool { return r == old })
}

// Stop ends all plugins, side by side.
func (c *Catalog) Stop(ctx context.Context) {
	c.mu.Lock()
	all := slices.Concat(c.InForce().Current, c.draining)
	c.mu.Unlock()
	stopAll(ctx, all)
}

// handOver leaves the instances of a revision that has ended to its successor. It reports
// false if there is none, or if that one's chain has ended: nobody can reach them then.
func (c *Catalog) handOver(old, successor *Revision, instances func(*Revision) int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if successor == nil || successor.serving().final {
		return false
	}
	old.follow(successor)
	c.succeeded = slices.DeleteFunc(c.succeeded, func(r *Revision) bool { return instances(r) == 0 })
	if !slices.Contains(c.succeeded, old) {
		c.succeeded = append(c.succeeded, old)
	}
	return true
}

// chain returns a revision and those that have left their instances to it.
func (c *Catalog) chain(r *Revision) []*Revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chainOf(r)
}

func (c *Catalog) chainOf(r *Revision) []*Revision {
	chain := []*Revision{r}
	for _, old := range c.succeeded {
		if old != r && old.serving() == r {
			chain = append(chain, old)
		}
	}
	return chain
}

// endChain makes a revision the last that serves what was left to it, and returns all
// that nobody serves from now on.
func (c *Catalog) endChain(last *Revision) []*Revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	last.final = true
	chain := c.chainOf(last)
	c.succeeded = slices.DeleteFunc(c.succeeded, func(r *Revision) bool { return slices.Contains(chain, r) })
	return chain
}
