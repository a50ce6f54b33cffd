package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandbox-broker/sandbox-broker/broker/disk"
)

var (
	diskWrites = prometheus.NewDesc("sandbox_broker_disk_write_seconds",
		"How long the broker waited for its own disk, by what was written.", []string{"of"}, nil)
	diskWaiting = prometheus.NewDesc("sandbox_broker_disk_waiting_seconds",
		"How long the broker has been waiting for its own disk at this moment; 0 while it is not.", []string{"of"}, nil)
)

// ShowDisks adds the waits for the broker's own disk, by what is written. They are
// asked for whenever somebody looks.
func (m *Metrics) ShowDisks(states func() map[string]disk.State) {
	m.registry.MustRegister(diskCollector{states})
}

type diskCollector struct{ states func() map[string]disk.State }

// Describe implements prometheus.Collector.
func (diskCollector) Describe(out chan<- *prometheus.Desc) {
	out <- diskWrites
	out <- diskWaiting
}

// Collect implements prometheus.Collector.
func (c diskCollector) Collect(out chan<- prometheus.Metric) {
	for of, s := range c.states() {
		out <- prometheus.MustNewConstHistogram(diskWrites, s.Count, s.Sum.Seconds(), s.Buckets, of)
		out <- prometheus.MustNewConstMetric(diskWaiting, prometheus.GaugeValue, s.Waiting.Seconds(), of)
	}
}
