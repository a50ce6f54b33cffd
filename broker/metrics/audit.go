package metrics

import "github.com/prometheus/client_golang/prometheus"

// Audit is the state of the audit log at this moment.
type Audit struct {
	// Writable says whether anything may happen.
	Writable bool
	// Lines that were written, effects that were Refused because theirs could not
	// be, and effects whose outcome came Late.
	Lines, Refused, Late uint64
	// Behind is how many lines a further sink has still to get, by its name.
	Behind map[string]uint64
}

var (
	auditWritable = prometheus.NewDesc("sandbox_broker_audit_writable",
		"Whether the audit log can be written. Nothing is done while it cannot.", nil, nil)
	auditLines = prometheus.NewDesc("sandbox_broker_audit_lines_total",
		"Lines of the audit log that were written.", nil, nil)
	auditRefused = prometheus.NewDesc("sandbox_broker_audit_refused_total",
		"Effects that did not happen because the audit log could not be written.", nil, nil)
	auditLate = prometheus.NewDesc("sandbox_broker_audit_late_total",
		"Effects that had happened when the audit log could not take down their outcome.", nil, nil)
	auditBehind = prometheus.NewDesc("sandbox_broker_audit_sink_behind",
		"Lines of the audit log that are still to be sent.", []string{"sink"}, nil)
)

// ShowAudit adds the audit log. Its state is asked for whenever somebody looks.
func (m *Metrics) ShowAudit(state func() Audit) { m.registry.MustRegister(auditCollector{state}) }

type auditCollector struct{ state func() Audit }

// Describe implements prometheus.Collector.
func (auditCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{auditWritable, auditLines, auditRefused, auditLate, auditBehind} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c auditCollector) Collect(out chan<- prometheus.Metric) {
	state := c.state()
	out <- prometheus.MustNewConstMetric(auditWritable, prometheus.GaugeValue, oneIf(state.Writable))
	out <- prometheus.MustNewConstMetric(auditLines, prometheus.CounterValue, float64(state.Lines))
	out <- prometheus.MustNewConstMetric(auditRefused, prometheus.CounterValue, float64(state.Refused))
	out <- prometheus.MustNewConstMetric(auditLate, prometheus.CounterValue, float64(state.Late))
	for name, lines := range state.Behind {
		out <- prometheus.MustNewConstMetric(auditBehind, prometheus.GaugeValue, float64(lines), name)
	}
}
