package providertest

import "github.com/sandbox-broker/sandbox-broker/sdk"

func healthCases() []Case {
	const group = "health"
	return []Case{
		{Group: group, Name: "it is healthy with the settings of this run", fresh: true, run: isHealthy},
		{Group: group, Name: "a probe is answered in time", run: answersProbes},
		{Group: group, Name: "probes at the same time are answered", run: answersProbesTogether},
		{Group: group, Name: "probes are answered while code runs", run: answersProbesWhileCodeRuns},
		{Group: group, Name: "counters do not go back", run: countersGrow},
	}
}

func (c *scene) probe() sdk.Health {
	ctx, cancel := c.within(healthTimeout)
	defer cancel()
	health, err := c.Health(ctx)
	c.must(err, "Health")
	return health
}

// "Health says whether Create would work now." (Provider.Health)
func isHealthy(c *scene) { c.newSession(newBrokerID(), newBrokerID()) }

// "It is called every few seconds: keep it cheap." (Provider.Health) The broker
// gives a probe 5 seconds.
func answersProbes(c *scene) {
	for range 5 {
		c.probe()
	}
}

// "All other methods may be called concurrently." (Provider)
func answersProbesTogether(c *scene) {
	for _, err := range repeated(10, func(int) error {
		ctx, cancel := c.within(healthTimeout)
		defer cancel()
		_, err := c.Health(ctx)
		return err
	}) {
		c.must(err, "Health, ten at a time")
	}
}

// The same.
func answersProbesWhileCodeRuns(c *scene) {
	id := c.instance()
	e := c.begin(c.ctx, c.lasting(id, c.samples.Wait))
	c.saying(e, "ready")
	health := c.probe()
	c.check(health.Healthy, "it is not healthy: %s", health.Reason)
}

// "only grows, from the start of the process" (MetricCounter)
func countersGrow(c *scene) {
	before := c.probe().Metrics
	id := c.instance()
	c.run(id, c.samples.Hello)
	after := c.probe().Metrics
	if len(before)+len(after) == 0 {
		c.skip("it has no metrics")
	}
	key := func(m sdk.Metric) string { return m.Name + shown(m.Labels) }
	values := map[string]float64{}
	for _, m := range before {
		if m.Kind == sdk.MetricCounter {
			values[key(m)] = m.Value
		}
	}
	for _, m := range after {
		if was, known := values[key(m)]; known {
			c.check(m.Value >= was, "the counter %s went from %v to %v", m.Name, was, m.Value)
		}
	}
}
