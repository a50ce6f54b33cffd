// Package generation has the accepted versions of the configuration, with the providers
// of each.
//
// A Generation is what requests go by, and a Revision one version of a provider in it.
// The Catalog knows which generation is in force and which earlier revisions still have
// instances. A Host supervises revisions and drains those that are replaced or removed.
// How a generation comes about is package reload's.
package generation

import (
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// Generation is one accepted version of the configuration: what every request
// goes by. Nobody changes it; the next one takes its place as a whole.
type Generation struct {
	// Number counts from 1.
	Number   int
	Accepted time.Time
	Config   *config.Config
	tenants  *tenant.Directory
	// Current revision of each provider, in the order of the configuration, and
	// the same as package instance wants them.
	Current []*Revision
	offered []instance.Provider
	// costs of a second of an instance's life, by provider.
	costs map[string]float64
}

// New makes the generation that comes after the one before, nil for the first.
func New(cfg *config.Config, current []*Revision, before *Generation) *Generation {
	number := 1
	if before != nil {
		number = before.Number + 1
	}
	g := &Generation{Number: number, Accepted: time.Now(), Config: cfg, Current: current, costs: map[string]float64{}}
	for _, p := range cfg.Providers {
		g.costs[p.Label] = p.CostPerSecond
	}
	for _, r := range current {
		g.offered = append(g.offered, r)
	}
	var all []tenant.Credentials
	for _, t := range cfg.Tenants {
		since := number
		if before != nil {
			if same, ok := before.tenants.Tenant(t.Name); ok {
				since = same.Since
			}
		}
		all = append(all, tenant.Credentials{
			Tenant:      tenant.Tenant{Name: t.Name, Providers: t.Providers, Reuse: t.Reuse, Network: t.Network, Since: since},
			TokenSHA256: t.TokenSHA256,
		})
	}
	g.tenants = tenant.NewDirectory(all)
	return g
}

// Reworded is the generation with a configuration that says the same in other words, and
// its revisions in the order of that.
func (g *Generation) Reworded(cfg *config.Config, current []*Revision) *Generation {
	same := New(cfg, current, g)
	same.Number, same.Accepted = g.Number, g.Accepted
	return same
}

// Has reports whether there is a tenant of that name.
func (g *Generation) Has(name string) bool {
	_, ok := g.tenants.Tenant(name)
	return ok
}

// Revision returns that of a provider, nil if the generation has none.
func (g *Generation) Revision(label string) *Revision {
	i := slices.IndexFunc(g.Current, func(r *Revision) bool { return r.Label() == label })
	if i < 0 {
		return nil
	}
	return g.Current[i]
}
