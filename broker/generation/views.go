package generation

import (
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
)

var _ admin.Broker = (*Catalog)(nil)

// shown is a provider as others see it: the revision in force, or one that drains of a
// provider that was removed.
type shown struct {
	*Revision
	draining int // earlier revisions, and that of a removed provider
	removed  bool
}

func (c *Catalog) shown() (list []shown) {
	c.mu.Lock()
	current, draining := c.InForce().Current, c.draining
	c.mu.Unlock()
	for _, r := range current {
		list = append(list, shown{Revision: r})
	}
	for _, old := range draining {
		if at := slices.IndexFunc(list, func(s shown) bool { return s.Label() == old.Label() }); at >= 0 {
			list[at].draining++
		} else {
			list = append(list, shown{Revision: old, draining: 1, removed: true})
		}
	}
	return list
}

// AdminTokens implements admin.Broker.
func (c *Catalog) AdminTokens() [][32]byte {
	if g := c.InForce(); g.Config != nil {
		return g.Config.Admin.TokenSHA256
	}
	return nil
}

// AdminProviders implements admin.Broker.
func (c *Catalog) AdminProviders() (list []admin.Provider) {
	active := c.Active()
	for _, s := range c.shown() {
		list = append(list, admin.Provider{
			Label: s.Label(), Active: !s.removed && s.Label() == active, Executable: s.Executable(), Description: s.Description(),
			State: s.State(), Standing: c.Router.Standing(s.Label()), Draining: s.draining, Removed: s.removed,
		})
	}
	return list
}

// Metrics are what the metrics say of the providers.
func (c *Catalog) Metrics() (list []metrics.Provider) {
	costs := c.InForce().costs
	for _, s := range c.shown() {
		if s.removed {
			list = append(list, metrics.Provider{Label: s.Label(), Removed: true, Draining: s.draining})
			continue
		}
		state, standing := s.State(), c.Router.Standing(s.Label())
		list = append(list, metrics.Provider{
			CreationCircuitOpen: standing.Circuit != routing.Closed, Creation: standing.Creation,
			Label: s.Label(), Plugin: s.Description().Name, Version: s.Description().Version, Region: state.Details["region"],
			CostPerSecond: costs[s.Label()],
			Ready:         state.Healthy, Restarts: state.Restarts, Draining: s.draining, Metrics: state.Metrics,
			CircuitOpen: state.Phase == pluginhost.PhaseUnavailable, FailedAt: state.FailedAt,
		})
	}
	return list
}
