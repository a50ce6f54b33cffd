package generation

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/placement"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Capacities are what the providers in force have, as their last health probes say, and when
// these were. Used is left to who counts instances.
func (c *Catalog) Capacities() (all map[string]placement.Capacity, probed map[string]time.Time) {
	all, probed = map[string]placement.Capacity{}, map[string]time.Time{}
	for _, r := range c.InForce().Current {
		state := r.State()
		capacity := placement.Capacity{Ready: state.Healthy}
		for _, m := range state.Metrics {
			switch m.Name {
			case sdk.MetricReadySandboxes:
				if capacity.Warm == nil {
					capacity.Warm = map[string]int{}
				}
				capacity.Warm[m.Labels[sdk.MetricLabelTemplate]] += int(m.Value)
			case sdk.MetricMaxSandboxes:
				capacity.Max = int(m.Value)
			}
		}
		all[r.Label()], probed[r.Label()] = capacity, state.ProbedAt
	}
	return all, probed
}
