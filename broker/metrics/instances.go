package metrics

import "github.com/prometheus/client_golang/prometheus"

var instances = prometheus.NewDesc("sandbox_broker_instances",
	"Instances of all tenants by what they are doing; unclear are those of which nobody knows whether the provider has them.",
	[]string{"provider", "state"}, nil)

// ShowInstances adds how many instances there are, by the labels of their providers and
// by their states, which the function returns whenever somebody looks. It is called once
// at most.
func (m *Metrics) ShowInstances(counts func() map[string]map[string]int) {
	m.registry.MustRegister(instanceCollector{counts})
}

type instanceCollector struct {
	counts func() map[string]map[string]int
}

// Describe implements prometheus.Collector.
func (instanceCollector) Describe(out chan<- *prometheus.Desc) { out <- instances }

// Collect implements prometheus.Collector.
func (c instanceCollector) Collect(out chan<- prometheus.Metric) {
	for provider, counts := range c.counts() {
		for state, n := range counts {
			out <- prometheus.MustNewConstMetric(instances, prometheus.GaugeValue, float64(n), provider, state)
		}
	}
}
