package metrics_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAReadingAddsUp(t *testing.T) {
	ready := func(name, template string, value float64) sdk.Metric {
		return sdk.Metric{Name: name, Help: "Ready.", Kind: sdk.MetricGauge, Labels: map[string]string{"template": template}, Value: value}
	}
	m := metrics.New(func() []metrics.Provider {
		return []metrics.Provider{
			{Label: "one", Plugin: "pools", Metrics: []sdk.Metric{ready("pool_ready_sandboxes", "python", 2), ready("pool_ready_sandboxes", "node", 1)}},
			{Label: "two", Plugin: "pods", Metrics: []sdk.Metric{ready("warm_pool_ready_sandboxes", "python", 4), ready("pool_making_sandboxes", "python", 9)}},
			{Label: "three", Plugin: "none"},
		}
	}, unchanged)
	outcomes := metrics.NewOutcomes()
	m.ShowOutcomes(outcomes)
	m.ShowInstances(func() map[string]map[string]int {
		return map[string]map[string]int{"one": {"live": 2, "paused": 0}, "two": {"live": 1}}
	})
	m.Request(t.Context(), "POST", "/api/v1/execute", 200, "", 3*time.Millisecond)
	m.Request(t.Context(), "POST", "/api/v1/execute", 503, sdk.CodeUnavailable, time.Hour)
	m.Request(t.Context(), "GET", "/api/v1/usage", 200, "", 2*time.Millisecond)
	m.Request(t.Context(), "WHATEVER", "", 404, sdk.CodeNotFound, time.Millisecond)
	m.Request(t.Context(), "GET", "/api/admin/sandbox/status", 200, "", time.Microsecond)
	m.Request(t.Context(), "GET", "/admin/assets/{name}", 200, "", time.Microsecond)
	m.Request(t.Context(), "GET", "/healthz", 200, "", time.Microsecond)
	m.Request(t.Context(), "GET", "/readyz", 503, sdk.CodeUnavailable, time.Microsecond)
	outcomes.Executed(t.Context(), instance.ExecutionOutcome{Provider: "one", Language: "python", Status: sdk.StatusSucceeded, Code: ""})
	outcomes.Executed(t.Context(), instance.ExecutionOutcome{Provider: "one", Language: "python", Status: instance.StatusError, Code: sdk.CodeUnavailable})
	outcomes.Executed(t.Context(), instance.ExecutionOutcome{Provider: "two", Language: "bash", Status: sdk.StatusSucceeded, Code: ""})
	outcomes.FailedOver("one", "two", sdk.CodeUnavailable)
	outcomes.FailedOver("one", "three", sdk.CodeQuotaExceeded)

	r := m.Reading()
	assert.DeepEqual(t, r.Requests, map[string]float64{"ok": 2, "SB009": 1, "SB013": 1})
	assert.DeepEqual(t, r.Executions, map[string]float64{"one": 2, "two": 1})
	assert.DeepEqual(t, r.Instances, map[string]float64{"live": 3, "paused": 0})
	assert.DeepEqual(t, r.Pool, map[string]float64{"one": 3, "two": 4})
	assert.Equal(t, r.Failovers, 2.0)
	assert.Equal(t, r.Latency.Total, 4.0)
	assert.DeepEqual(t, r.Latency.Bounds[:3], []float64{.001, .0025, .005})
	assert.DeepEqual(t, r.Latency.Counts[:3], []float64{1, 2, 3})
	assert.Equal(t, r.Latency.Counts[len(r.Latency.Counts)-1], 3.0)
}
