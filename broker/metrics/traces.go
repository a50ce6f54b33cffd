package metrics

import "github.com/prometheus/client_golang/prometheus"

var traceSpans = prometheus.NewDesc("sandbox_broker_trace_spans_total",
	"Parts of traces that were meant to be sent (ended), were sent, and could not be (failed). The others wait, or were dropped.", []string{"result"}, nil)

// ShowTraces adds how many parts of traces were ended, sent and failed, which is asked for
// whenever somebody looks.
func (m *Metrics) ShowTraces(counts func() (ended, sent, failed uint64)) {
	m.registry.MustRegister(traceCollector{counts})
}

type traceCollector struct {
	counts func() (ended, sent, failed uint64)
}

// Describe implements prometheus.Collector.
func (traceCollector) Describe(out chan<- *prometheus.Desc) { out <- traceSpans }

// Collect implements prometheus.Collector.
func (c traceCollector) Collect(out chan<- prometheus.Metric) {
	ended, sent, failed := c.counts()
	for result, n := range map[string]uint64{"ended": ended, "sent": sent, "failed": failed} {
		out <- prometheus.MustNewConstMetric(traceSpans, prometheus.CounterValue, float64(n), result)
	}
}
