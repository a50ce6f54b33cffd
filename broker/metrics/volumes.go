package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	volumes = prometheus.NewDesc("sandbox_broker_volumes",
		"Volumes that there are or may be, by the label of the provider that has them.", []string{"provider"}, nil)
	volumeBytes = prometheus.NewDesc("sandbox_broker_volume_bytes",
		"What these may take, which is what their tenants asked for.", []string{"provider"}, nil)
)

// Volumes are how many there are at a provider, and the bytes that they may take.
type Volumes struct{ Count, Bytes int64 }

// ShowVolumes adds how many volumes there are, by the labels of their providers, which the
// function returns whenever somebody looks. It is called once at most.
func (m *Metrics) ShowVolumes(counts func() map[string]Volumes) {
	m.registry.MustRegister(volumeCollector{counts})
}

type volumeCollector struct {
	counts func() map[string]Volumes
}

// Describe implements prometheus.Collector.
func (volumeCollector) Describe(out chan<- *prometheus.Desc) {
	out <- volumes
	out <- volumeBytes
}

// Collect implements prometheus.Collector.
func (c volumeCollector) Collect(out chan<- prometheus.Metric) {
	for provider, n := range c.counts() {
		out <- prometheus.MustNewConstMetric(volumes, prometheus.GaugeValue, float64(n.Count), provider)
		out <- prometheus.MustNewConstMetric(volumeBytes, prometheus.GaugeValue, float64(n.Bytes), provider)
	}
}
