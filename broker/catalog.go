package broker

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
)

// catalog lists the supervised providers. It is empty until they are set.
type catalog struct {
	active string
	all    atomic.Pointer[[]instance.Provider]
}

var _ instance.Catalog = (*catalog)(nil)

func (c *catalog) Active() string { return c.active }

func (c *catalog) Providers() []instance.Provider {
	if all := c.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (c *catalog) set(supervised []*pluginhost.Supervised) {
	all := make([]instance.Provider, 0, len(supervised))
	for _, s := range supervised {
		all = append(all, provider{s})
	}
	c.all.Store(&all)
}

// stop ends all plugins, side by side.
func (c *catalog) stop(ctx context.Context) {
	var group sync.WaitGroup
	for _, p := range c.Providers() {
		group.Go(func() { p.(provider).Stop(ctx) })
	}
	group.Wait()
}

// states are what the metrics say of the providers.
func (c *catalog) states() []metrics.Provider {
	var states []metrics.Provider
	for _, p := range c.Providers() {
		state := p.(provider).State()
		states = append(states, metrics.Provider{
			Label: p.Label(), Plugin: p.Description().Name,
			Ready: state.Healthy, Restarts: state.Restarts, Metrics: state.Metrics,
		})
	}
	return states
}

// provider shows a supervised plugin as package instance wants it.
type provider struct{ *pluginhost.Supervised }

var _ instance.Provider = provider{}

func (p provider) Status() instance.Status {
	state := p.State()
	return instance.Status{
		State:   string(state.Phase),
		Ready:   state.Healthy,
		Reason:  state.Reason,
		Details: state.Details,
	}
}
