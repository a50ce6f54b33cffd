package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
)

var (
	connectionsOpen = prometheus.NewDesc("sandbox_broker_connections",
		"Connections that are open: of clients that have shown a valid token on them, and of others.", []string{"server", "token"}, nil)
	connectionsClosed = prometheus.NewDesc("sandbox_broker_connections_closed_total",
		"Connections that the broker has closed so that there is room for others, or has not taken, by the reason.", []string{"server", "reason"}, nil)
	connectionsOverdrawn = prometheus.NewDesc("sandbox_broker_connections_overdrawn_total",
		"Requests that were refused because their tenant had too many connections.", []string{"server"}, nil)
	acceptErrors = prometheus.NewDesc("sandbox_broker_accept_errors_total",
		"Errors while connections were accepted, such as a want of file descriptors. They are waited out.", []string{"server"}, nil)
)

// ShowConnections adds the connections of servers, by their names. They are counted
// whenever somebody looks.
func (m *Metrics) ShowConnections(servers map[string]func() admission.Counts) {
	m.registry.MustRegister(connectionCollector{servers})
}

type connectionCollector struct {
	servers map[string]func() admission.Counts
}

// Describe implements prometheus.Collector.
func (connectionCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsOpen, connectionsClosed, connectionsOverdrawn, acceptErrors} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c connectionCollector) Collect(out chan<- prometheus.Metric) {
	for server, counts := range c.servers {
		n := counts()
		out <- prometheus.MustNewConstMetric(connectionsOpen, prometheus.GaugeValue, float64(n.Known), server, "valid")
		out <- prometheus.MustNewConstMetric(connectionsOpen, prometheus.GaugeValue, float64(n.Strangers), server, "none")
		out <- prometheus.MustNewConstMetric(connectionsClosed, prometheus.CounterValue, float64(n.Displaced), server, "no_token")
		out <- prometheus.MustNewConstMetric(connectionsClosed, prometheus.CounterValue, float64(n.Idle), server, "idle")
		out <- prometheus.MustNewConstMetric(connectionsClosed, prometheus.CounterValue, float64(n.Refused), server, "refused")
		out <- prometheus.MustNewConstMetric(connectionsOverdrawn, prometheus.CounterValue, float64(n.Overdrawn), server)
		out <- prometheus.MustNewConstMetric(acceptErrors, prometheus.CounterValue, float64(n.Errors), server)
	}
}
