package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Configuration is the state of the configuration at this moment.
type Configuration struct {
	// Generation that is in force, from 1.
	Generation int
	// Applied and Refused count reloads that changed something and those that
	// were refused.
	Applied, Refused int
	// LastAt is when the last reload was over, zero if there was none; LastOK
	// says whether it was accepted.
	LastAt time.Time
	LastOK bool
	// Shared is the number of the generation that is in force here of what brokers share, and
	// SharedNewest that of the one that all have agreed to; 0 where nothing is shared.
	Shared, SharedNewest int64
	// CertificateEnds is when the certificate of the API is valid no more; zero for
	// an API without one.
	CertificateEnds time.Time
}

var (
	configGeneration = prometheus.NewDesc("sandbox_broker_config_generation",
		"The generation of the configuration that is in force.", nil, nil)
	configReloads = prometheus.NewDesc("sandbox_broker_config_reloads_total",
		"Reloads of the configuration that changed something, and those that were refused.", []string{"result"}, nil)
	configLastOK = prometheus.NewDesc("sandbox_broker_config_last_reload_successful",
		"Whether the last reload was accepted; 1 if there was none.", nil, nil)
	configLastAt = prometheus.NewDesc("sandbox_broker_config_last_reload_timestamp_seconds",
		"When the last reload was over; 0 if there was none.", nil, nil)
	configShared = prometheus.NewDesc("sandbox_broker_config_shared_generation",
		"The generation of the configuration that brokers share, as it is in force here (in_force) and as they have agreed to it last (agreed); absent where none is shared.", []string{"which"}, nil)
	certificateEnds = prometheus.NewDesc("sandbox_broker_tls_certificate_end_timestamp_seconds",
		"When the certificate of the API ends; absent without TLS.", nil, nil)
)

// configurationCollector shows the configuration as it is when it is asked.
type configurationCollector struct{ state func() Configuration }

// Describe implements prometheus.Collector.
func (configurationCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{configGeneration, configReloads, configLastOK, configLastAt, configShared, certificateEnds} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c configurationCollector) Collect(out chan<- prometheus.Metric) {
	state := c.state()
	at, ok := 0.0, 1.0
	if !state.LastAt.IsZero() {
		at = float64(state.LastAt.UnixMilli()) / 1e3
		if !state.LastOK {
			ok = 0
		}
	}
	out <- prometheus.MustNewConstMetric(configGeneration, prometheus.GaugeValue, float64(state.Generation))
	out <- prometheus.MustNewConstMetric(configReloads, prometheus.CounterValue, float64(state.Applied), "applied")
	out <- prometheus.MustNewConstMetric(configReloads, prometheus.CounterValue, float64(state.Refused), "refused")
	out <- prometheus.MustNewConstMetric(configLastOK, prometheus.GaugeValue, ok)
	out <- prometheus.MustNewConstMetric(configLastAt, prometheus.GaugeValue, at)
	if state.SharedNewest > 0 {
		out <- prometheus.MustNewConstMetric(configShared, prometheus.GaugeValue, float64(state.Shared), "in_force")
		out <- prometheus.MustNewConstMetric(configShared, prometheus.GaugeValue, float64(state.SharedNewest), "agreed")
	}
	if end := state.CertificateEnds; !end.IsZero() {
		out <- prometheus.MustNewConstMetric(certificateEnds, prometheus.GaugeValue, float64(end.Unix()))
	}
}
