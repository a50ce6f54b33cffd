package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	snapshots = prometheus.NewDesc("sandbox_broker_snapshots",
		"Snapshots that there are or may be, by the label of the provider that has them.", []string{"provider"}, nil)
	snapshotBytes = prometheus.NewDesc("sandbox_broker_snapshot_bytes",
		"What these take where they are kept, as far as the provider says.", []string{"provider"}, nil)
)

// Snapshots are how many there are at a provider, and their bytes.
type Snapshots struct{ Count, Bytes int64 }

// ShowSnapshots adds how many snapshots there are, by the labels of their providers, which the
// function returns whenever somebody looks. It is called once at most.
func (m *Metrics) ShowSnapshots(counts func() map[string]Snapshots) {
	m.registry.MustRegister(snapshotCollector{counts})
}

type snapshotCollector struct {
	counts func() map[string]Snapshots
}

// Describe implements prometheus.Collector.
func (snapshotCollector) Describe(out chan<- *prometheus.Desc) {
	out <- snapshots
	out <- snapshotBytes
}

// Collect implements prometheus.Collector.
func (c snapshotCollector) Collect(out chan<- prometheus.Metric) {
	for provider, n := range c.counts() {
		out <- prometheus.MustNewConstMetric(snapshots, prometheus.GaugeValue, float64(n.Count), provider)
		out <- prometheus.MustNewConstMetric(snapshotBytes, prometheus.GaugeValue, float64(n.Bytes), provider)
	}
}
