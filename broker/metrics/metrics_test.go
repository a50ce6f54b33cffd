package metrics_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve shows metrics on a real listener until the test ends.
func serve(t *testing.T, m *metrics.Metrics) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	server, served := m.NewServer(), make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		assert.Check(t, server.Shutdown(ctx))
		assert.Check(t, <-served)
	})
	return "http://" + listener.Addr().String() + metrics.Path
}

// unchanged is the configuration of a broker that has just started.
func unchanged() metrics.Configuration { return metrics.Configuration{Generation: 1} }

func get(t *testing.T, method, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	assert.NilError(t, err)
	resp, err := client.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return resp.StatusCode, string(text)
}

// ours leaves out what Go and the kernel say of the process.
func ours(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "sandbox_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func pooled(template string, value float64) sdk.Metric {
	return sdk.Metric{Name: "pool_ready", Help: "Ready.", Kind: sdk.MetricGauge, Labels: map[string]string{"template": template}, Value: value}
}

func TestWhatIsShown(t *testing.T) {
	made := sdk.Metric{Name: "made_total", Help: "Made.", Kind: sdk.MetricCounter, Value: 7}
	other, changed := made, made
	other.Help = "Made, in other words."
	changed.Kind = sdk.MetricGauge
	m := metrics.New(func() []metrics.Provider {
		return []metrics.Provider{
			{Label: "one", Plugin: "pools", Ready: true, Metrics: []sdk.Metric{pooled("python", 2), pooled("a\n\"b\\", 0), made}},
			{Label: "two", Plugin: "pools", Restarts: 3, Metrics: []sdk.Metric{pooled("python", 1), other}},
			{Label: "three", Plugin: "pools", CircuitOpen: true, FailedAt: time.UnixMilli(1_700_000_000_500), Metrics: []sdk.Metric{changed}},
			{Label: "four"},
		}
	}, func() metrics.Configuration {
		return metrics.Configuration{Generation: 3, Applied: 2, Refused: 1, LastAt: time.Unix(1_700_000_000, 500e6), LastOK: false}
	})
	m.Request(t.Context(), "POST", "/api/v1/execute", 200, "", 3*time.Millisecond)
	m.Request(t.Context(), "POST", "/api/v1/execute", 200, "", 2*time.Second)
	m.Request(t.Context(), "POST", "/api/v1/execute", 503, sdk.CodeCreateFailed, time.Hour)
	m.Request(t.Context(), "WHATEVER", "", 404, sdk.CodeNotFound, time.Millisecond)
	status, text := get(t, http.MethodGet, serve(t, m))
	assert.Equal(t, status, http.StatusOK)
	golden.Assert(t, ours(text), "metrics.golden")
	assert.Check(t, is.Contains(text, "go_goroutines "))
	assert.Check(t, is.Contains(text, "process_cpu_seconds_total "))
}

func TestAProviderThatRepeatsItselfHidesNobodyElse(t *testing.T) {
	m := metrics.New(func() []metrics.Provider {
		return []metrics.Provider{{Label: "one", Plugin: "pools", Ready: true, Metrics: []sdk.Metric{pooled("python", 2), pooled("python", 3)}}}
	}, unchanged)
	status, text := get(t, http.MethodGet, serve(t, m))
	assert.Equal(t, status, http.StatusOK)
	assert.Check(t, is.Contains(text, `sandbox_broker_provider_ready{provider="one"} 1`))
}

func TestThereIsNothingElseOnTheListener(t *testing.T) {
	url := serve(t, metrics.New(func() []metrics.Provider { return nil }, unchanged))
	status, _ := get(t, http.MethodGet, strings.TrimSuffix(url, metrics.Path)+"/debug/pprof/")
	assert.Equal(t, status, http.StatusNotFound)
	status, _ = get(t, http.MethodPost, url)
	assert.Equal(t, status, http.StatusMethodNotAllowed)
}
