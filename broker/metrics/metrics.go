package metrics

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Metrics are those of one broker.
type Metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// New returns metrics that count nothing yet. The states of the providers and of
// the configuration are asked for whenever somebody looks.
func New(providers func() []Provider, configuration func() Configuration) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_broker_requests_total",
			Help: "Requests that were answered. The code is empty for those that were not refused, the route for those that have none.",
		}, []string{"method", "route", "status", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandbox_broker_request_duration_seconds",
			Help: "Time from the arrival of a request to its answer.",
			// From an answer out of memory to the longest executions.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600},
		}, []string{"route"}),
	}
	m.registry.MustRegister(
		m.requests, m.durations, providerCollector{providers}, configurationCollector{configuration},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Request counts an answered request. The route is a pattern, "" for none; then
// the method is the client's invention and left out.
//
// The context says which request it is.
func (m *Metrics) Request(ctx context.Context, method, route string, status int, code sdk.Code, took time.Duration) {
	if route == "" {
		method = ""
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status), string(code)).Inc()
	observe(ctx, m.durations.WithLabelValues(route), took.Seconds())
}

// ShowBuild adds the version of the broker.
func (m *Metrics) ShowBuild(version string) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sandbox_broker_build_info", Help: "The version of the broker: always 1.",
		ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 }))
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// What can be shown is shown, whatever one provider says.
		ErrorHandling: promhttp.ContinueOnError,
		Registry:      m.registry,
		// Only this format has exemplars; who does not ask for it gets the other.
		EnableOpenMetrics: true,
	})
}
