package opensandbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type measured struct {
	CPUs   float64 `json:"cpu_count"`
	CPU    float64 `json:"cpu_used_pct"`
	Total  float64 `json:"mem_total_mib"`
	Used   float64 `json:"mem_used_mib"`
	Millis int64   `json:"timestamp"`
}

func TestMetricsAreOfAllProcessorsOfTheSandbox(t *testing.T) {
	f := start(t)
	var m measured
	f.execd(http.MethodGet, "/metrics", "").wants(http.StatusOK).decode(&m)
	assert.Equal(t, m, measured{CPUs: 2, CPU: 25, Total: 512, Used: 64, Millis: 1_700_000_001_000})
}

func TestMetricsOfWhatIsNotKnown(t *testing.T) {
	f := start(t, func(b *box) { b.metrics.Store(&sdk.InstanceMetrics{MeasuredAt: time.UnixMilli(1000), Memory: 1 << 20}) })
	var m measured
	f.execd(http.MethodGet, "/metrics", "").wants(http.StatusOK).decode(&m)
	assert.Equal(t, m, measured{CPU: 50, Used: 1, Millis: 2000}) // of one processor
}

func TestMetricsThatCannotBeHad(t *testing.T) {
	f := start(t, func(b *box) { b.Capabilities = []sdk.Capability{sdk.CapabilityFiles} })
	for _, path := range []string{"/metrics", "/metrics/watch"} {
		f.execd(http.MethodGet, path, "").refuses(http.StatusNotImplemented, "SB015")
	}
	f = start(t, func(b *box) { b.measuring = func() error { return sdk.Errorf(sdk.CodeUnavailable, "not now") } })
	for _, path := range []string{"/metrics", "/metrics/watch"} {
		f.execd(http.MethodGet, path, "").refuses(http.StatusServiceUnavailable, "SB009")
	}
}

// A sandbox that is just being paused has no metrics, and is not worth ending a watch for.
func TestAWatchHasALineForEachLook(t *testing.T) {
	var looks atomic.Int64
	f := start(t, func(b *box) {
		b.measuring = func() error {
			if looks.Add(1) == 3 {
				return sdk.Errorf(sdk.CodeConflict, "it is being paused")
			}
			return nil
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req := f.request(ctx, http.MethodGet, f.endpoint+"/metrics/watch", strings.NewReader(""), "X-EXECD-ACCESS-TOKEN: "+f.token)
	resp, err := f.client.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusOK)
	assert.Equal(t, resp.Header.Get("Content-Type"), "text/event-stream")
	lines := bufio.NewScanner(resp.Body)
	for n := range 2 {
		assert.Assert(t, lines.Scan(), "%v", lines.Err())
		var m measured
		assert.NilError(t, json.Unmarshal(lines.Bytes(), &m))
		assert.Equal(t, m.CPU, 25.0)
		assert.Equal(t, m.Millis, int64(1_700_000_001_000+n*1000))
	}
	assert.Equal(t, looks.Load(), int64(4))
}
