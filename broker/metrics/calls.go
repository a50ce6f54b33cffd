package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
)

// Calls count the calls of plugins. It is a pluginhost.CallObserver.
type Calls struct {
	calls, bytes *prometheus.CounterVec
	durations    *prometheus.HistogramVec
}

var _ pluginhost.CallObserver = (*Calls)(nil)

// NewCalls returns counters at 0, which Metrics.ShowCalls shows.
func NewCalls() *Calls {
	return &Calls{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_broker_provider_calls_total",
			Help: "Calls of plugins that have ended, by the operation of the contract and the code of the error; the code is empty for none.",
		}, []string{"provider", "operation", "code"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_broker_provider_bytes_total",
			Help: "Bytes of the messages that the broker and the plugin have sent each other: files, code and output for the most part.",
		}, []string{"provider", "direction"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sandbox_broker_provider_call_duration_seconds",
			Help:    "Time that calls of plugins took, with the provider's own calls to its service behind them; for a stream, that of the stream.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600},
		}, []string{"provider", "operation"}),
	}
}

// ShowCalls adds the counters. It is called once at most.
func (m *Metrics) ShowCalls(c *Calls) { m.registry.MustRegister(c.calls, c.bytes, c.durations) }

// Called implements pluginhost.CallObserver.
func (c *Calls) Called(ctx context.Context, call pluginhost.Call) {
	code := string(call.Code)
	if call.Code != pluginhost.CallCanceled && call.Code != pluginhost.CallLate {
		code = known(call.Code)
	}
	c.calls.WithLabelValues(call.Provider, call.Operation, code).Inc()
	c.bytes.WithLabelValues(call.Provider, "sent").Add(float64(call.Sent))
	c.bytes.WithLabelValues(call.Provider, "received").Add(float64(call.Received))
	observe(ctx, c.durations.WithLabelValues(call.Provider, call.Operation), call.Took.Seconds())
}
