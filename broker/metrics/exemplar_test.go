package metrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// openMetrics is what Prometheus gets, which asks for that format first.
func openMetrics(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	recorder, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, metrics.Path, nil)
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
	m.Handler().ServeHTTP(recorder, request)
	assert.Equal(t, recorder.Code, http.StatusOK)
	assert.Assert(t, is.Contains(recorder.Header().Get("Content-Type"), "application/openmetrics-text"))
	assert.Assert(t, strings.HasSuffix(recorder.Body.String(), "# EOF\n"))
	return recorder.Body.String()
}

func asked(ctx context.Context, id string) context.Context {
	return origin.With(ctx, origin.Origin{Cause: origin.Request, Tenant: "acme", RequestID: id})
}

func TestBucketsNameARequest(t *testing.T) {
	o, c := metrics.NewOutcomes(), metrics.NewCalls()
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowOutcomes(o)
	m.ShowCalls(c)
	longest := strings.Repeat("x", 64)
	m.Request(asked(t.Context(), longest), "POST", "/api/v1/execute", 200, "", 3*time.Millisecond)
	for _, id := range []string{"first", "second"} {
		ctx := asked(t.Context(), id)
		o.Executed(ctx, instance.ExecutionOutcome{Provider: "one", Language: sdk.Python, Status: sdk.StatusSucceeded, Took: 40 * time.Millisecond, PeakMemoryBytes: 5 << 20})
		o.Created(ctx, "one", instance.CreateMade, "", time.Millisecond)
		o.Admitted(ctx, instance.AdmitGranted, 0)
		c.Called(ctx, pluginhost.Call{Provider: "one", Operation: "Execute", Took: time.Second})
	}
	o.Executed(t.Context(), instance.ExecutionOutcome{Provider: "one", Language: sdk.Python, Status: sdk.StatusSucceeded, Took: 20 * time.Second})
	text := openMetrics(t, m)
	for _, want := range []string{
		`sandbox_broker_request_duration_seconds_bucket{route="/api/v1/execute",le="0.005"} 1 # {request_id="` + longest + `"} 0.003`,
		`sandbox_broker_execution_duration_seconds_bucket{language="python",provider="one",le="0.05"} 2 # {request_id="second"} 0.04`,
		`sandbox_broker_execution_duration_seconds_bucket{language="python",provider="one",le="30.0"} 3` + "\n",
		`sandbox_broker_execution_peak_memory_bytes_bucket{language="python",provider="one",le="8.388608e+06"} 2 # {request_id="second"}`,
		`sandbox_broker_creation_duration_seconds_bucket{outcome="made",provider="one",le="0.001"} 2 # {request_id="second"}`,
		`sandbox_broker_queue_wait_seconds_bucket{outcome="granted",le="0.001"} 2 # {request_id="second"}`,
		`sandbox_broker_provider_call_duration_seconds_bucket{operation="Execute",provider="one",le="1.0"} 2 # {request_id="second"}`,
	} {
		assert.Check(t, is.Contains(text, want))
	}
	assert.Check(t, !strings.Contains(text, "acme"))
	_, plain := get(t, http.MethodGet, serve(t, m))
	assert.Check(t, !strings.Contains(plain, "request_id"), "the older format has no exemplars")
}

func TestWhatPluginsAreCalledForIsCounted(t *testing.T) {
	c := metrics.NewCalls()
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowCalls(c)
	c.Called(t.Context(), pluginhost.Call{Provider: "one", Operation: "ReadFile", Took: 2 * time.Second, Sent: 10, Received: 5000})
	c.Called(t.Context(), pluginhost.Call{Provider: "one", Operation: "ReadFile", Code: pluginhost.CallCanceled, Sent: 10})
	c.Called(t.Context(), pluginhost.Call{Provider: "one", Operation: "Create", Code: sdk.CodeQuotaExceeded, Received: 7})
	c.Called(t.Context(), pluginhost.Call{Provider: "one", Operation: "Create", Code: "SB999"})
	_, text := get(t, http.MethodGet, serve(t, m))
	for _, want := range []string{
		`sandbox_broker_provider_calls_total{code="",operation="ReadFile",provider="one"} 1`,
		`sandbox_broker_provider_calls_total{code="canceled",operation="ReadFile",provider="one"} 1`,
		`sandbox_broker_provider_calls_total{code="SB008",operation="Create",provider="one"} 1`,
		`sandbox_broker_provider_calls_total{code="other",operation="Create",provider="one"} 1`,
		`sandbox_broker_provider_bytes_total{direction="sent",provider="one"} 20`,
		`sandbox_broker_provider_bytes_total{direction="received",provider="one"} 5007`,
		`sandbox_broker_provider_call_duration_seconds_sum{operation="ReadFile",provider="one"} 2`,
	} {
		assert.Check(t, is.Contains(text, want+"\n"))
	}
}

func TestTheQueueTheCostsAndTheBuildAreShown(t *testing.T) {
	m := metrics.New(func() []metrics.Provider {
		return []metrics.Provider{
			{Label: "one", Plugin: "e2b", Version: "1.2", Region: "eu", CostPerSecond: 0.5},
			{Label: "two", Plugin: "e2b", Version: strings.Repeat("v", 65), Region: "\xff"},
			{Label: "three"},
		}
	}, unchanged)
	m.ShowQueue(func() int { return 3 })
	m.ShowCosts(func() map[string]float64 { return map[string]float64{"one": 1.5} })
	m.ShowBuild("0.9")
	_, text := get(t, http.MethodGet, serve(t, m))
	for _, want := range []string{
		"sandbox_broker_queue_waiting_requests 3", `sandbox_broker_provider_cost_total{provider="one"} 1.5`, `sandbox_broker_build_info{version="0.9"} 1`,
		`sandbox_broker_provider_info{plugin="e2b",provider="one",region="eu",version="1.2"} 1`,
		`sandbox_broker_provider_info{plugin="e2b",provider="two",region="other",version="other"} 1`,
		`sandbox_broker_provider_cost_per_second{provider="one"} 0.5`,
	} {
		assert.Check(t, is.Contains(text, want+"\n"))
	}
	assert.Check(t, !strings.Contains(text, `provider="three",region`))
	assert.Check(t, !strings.Contains(text, `cost_per_second{provider="two"`))
}

func TestAnExampleNamesItsTraceWhereThatIsSent(t *testing.T) {
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowTraces(func() (ended, sent, failed uint64) { return 7, 5, 1 })
	id := strings.Repeat("x", 64) // the longest, for the format has a limit
	for route, flags := range map[string]trace.TraceFlags{"/sent": trace.FlagsSampled, "/dropped": 0} {
		s := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}, TraceFlags: flags})
		m.Request(asked(trace.ContextWithSpanContext(t.Context(), s), id), "GET", route, 200, "", time.Millisecond)
	}
	text := openMetrics(t, m)
	_, sent, found := strings.Cut(text, `{route="/sent",le="0.001"} 1 # {`)
	assert.Assert(t, found, text)
	sent, _, _ = strings.Cut(sent, "}")
	labels := strings.Split(sent, ",")
	slices.Sort(labels) // they come in any order
	assert.DeepEqual(t, labels, []string{`request_id="` + id + `"`, `trace_id="00000000000000000000000000000001"`})
	for _, want := range []string{
		`{route="/dropped",le="0.001"} 1 # {request_id="` + id + `"} 0.001`,
		`sandbox_broker_trace_spans_total{result="ended"} 7`, `sandbox_broker_trace_spans_total{result="sent"} 5`, `sandbox_broker_trace_spans_total{result="failed"} 1`,
	} {
		assert.Check(t, is.Contains(text, want))
	}
}
