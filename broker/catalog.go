package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
)

// catalog lists the providers: of each the revision that gets new work, and those
// before it that still have instances. It is empty until they are set.
type catalog struct {
	active string

	mu       sync.Mutex // of writers
	current  []*revision
	draining []*revision
	// offered is current as package instance reads it, at each request.
	offered atomic.Pointer[[]instance.Provider]
}

var _ instance.Catalog = (*catalog)(nil)

func (c *catalog) Active() string { return c.active }

func (c *catalog) Providers() []instance.Provider {
	if offered := c.offered.Load(); offered != nil {
		return *offered
	}
	return nil
}

// set replaces both lists, which nobody changes afterwards. The caller holds mu.
func (c *catalog) set(current, draining []*revision) {
	offered := make([]instance.Provider, 0, len(current))
	for _, r := range current {
		offered = append(offered, r)
	}
	c.current, c.draining = current, draining
	c.offered.Store(&offered)
}

// revisions returns those that get new work, in the order of the configuration.
func (c *catalog) revisions() []*revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// replace puts a revision in the place of another, which drains from now on.
func (c *catalog) replace(old, new *revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := slices.Clone(c.current)
	current[slices.Index(current, old)] = new
	c.set(current, append(slices.Clone(c.draining), old))
}

// remove forgets a revision that has drained.
func (c *catalog) remove(old *revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(c.current, slices.DeleteFunc(slices.Clone(c.draining), func(r *revision) bool { return r == old }))
}

// stop ends all plugins, side by side.
func (c *catalog) stop(ctx context.Context) {
	c.mu.Lock()
	all := slices.Concat(c.current, c.draining)
	c.mu.Unlock()
	var group sync.WaitGroup
	for _, r := range all {
		group.Go(func() { r.Stop(ctx) })
	}
	group.Wait()
}

// states are what the metrics say of the providers.
func (c *catalog) states() []metrics.Provider {
	c.mu.Lock()
	current, draining := c.current, c.draining
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
		states = append(states, metrics.Provider{
			Label: r.Label(), Plugin: r.Description().Name,
			Ready: state.Healthy, Restarts: state.Restarts, Draining: earlier, Metrics: state.Metrics,
		})
	}
	return states
}
