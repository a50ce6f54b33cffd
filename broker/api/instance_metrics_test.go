package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// watchMetrics begins a stream of metrics.
func (f *fixture) watchMetrics(ctx context.Context, id string) *sse.Reader {
	f.t.Helper()
	resp, err := f.client.Do(f.request(ctx, http.MethodGet, "/api/v1/instances/"+id+"/metrics?interval_ms=100", "", wantsEvents))
	assert.NilError(f.t, err)
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	assert.Equal(f.t, resp.StatusCode, http.StatusOK)
	assert.Equal(f.t, resp.Header.Get("Content-Type"), sse.MediaType)
	return sse.NewReader(resp.Body, 1<<16)
}

func next(t *testing.T, r *sse.Reader, name string, into any) {
	t.Helper()
	e, err := r.Next()
	assert.NilError(t, err)
	assert.Equal(t, e.Name, name, string(e.Data))
	assert.NilError(t, json.Unmarshal(e.Data, into))
}

func TestMetricsAreAStream(t *testing.T) {
	f := start(t)
	var count atomic.Int64
	f.provider.OnMeasure = func(context.Context, string) (sdk.InstanceMetrics, error) {
		n := count.Add(1)
		if n == 1 || n == 3 {
			return sdk.InstanceMetrics{}, sdk.Errorf(sdk.CodeConflict, "the instance is being paused or resumed")
		}
		return sdk.InstanceMetrics{CPUTime: time.Duration(n) * time.Second, MemoryLimit: 1 << 20}, nil
	}
	id := f.create(`{}`).ID
	began := time.Now()
	r := f.watchMetrics(t.Context(), id)
	for _, n := range []float64{2, 4, 5} { // what cannot be measured just now is left out
		var m client.InstanceMetrics
		next(t, r, "metrics", &m)
		assert.Equal(t, m.CPUTime, n)
		assert.Equal(t, m.MemoryLimitMB, 1.0)
	}
	assert.Assert(t, time.Since(began) > 300*time.Millisecond, "four intervals are between five measurements")
}

func TestAStreamOfMetricsEndsWithItsInstance(t *testing.T) {
	f := start(t)
	var destroying atomic.Bool
	f.provider.OnDestroy = func(context.Context, string) error { destroying.Store(true); return nil }
	f.provider.OnMeasure = func(context.Context, string) (sdk.InstanceMetrics, error) {
		if destroying.Load() { // as a sandbox does that is just being taken apart
			return sdk.InstanceMetrics{}, sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not say what it uses")
		}
		return sdk.InstanceMetrics{Processes: 1}, nil
	}
	id := f.create(`{}`).ID
	r := f.watchMetrics(t.Context(), id)
	next(t, r, "metrics", &client.InstanceMetrics{})
	f.do(http.MethodDelete, "/api/v1/instances/"+id, "").wants(http.StatusNoContent)
	for {
		e, err := r.Next()
		assert.NilError(t, err)
		if e.Name == "metrics" {
			continue
		}
		assert.Equal(t, e.Name, "error")
		assert.Check(t, cmp.Contains(string(e.Data), `"code":"SB013"`))
		break
	}
	_, err := r.Next()
	assert.ErrorContains(t, err, "EOF")
}

func TestAStreamOfMetricsEndsWithItsReader(t *testing.T) {
	f := start(t)
	measuring, ended := make(chan struct{}), make(chan struct{})
	f.provider.OnMeasure = func(ctx context.Context, _ string) (sdk.InstanceMetrics, error) {
		close(measuring)
		<-ctx.Done()
		close(ended)
		return sdk.InstanceMetrics{}, ctx.Err()
	}
	id := f.create(`{}`).ID
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := f.client.Do(f.request(ctx, http.MethodGet, "/api/v1/instances/"+id+"/metrics", "", wantsEvents))
		if assert.Check(t, err != nil) {
			return
		}
		_ = resp.Body.Close()
	}()
	<-measuring
	leave()
	<-ended
	<-done
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(cmp.Contains(f.log.String(), "route=/api/v1/instances/{id}/metrics status=499"))
	}, poll.WithTimeout(2*time.Minute))
}

func TestAStreamOfMetricsEndsWhenTheBrokerBeginsToStop(t *testing.T) {
	f := start(t)
	var count atomic.Int64
	measuring := make(chan struct{})
	f.provider.OnMeasure = func(ctx context.Context, _ string) (sdk.InstanceMetrics, error) {
		if count.Add(1) == 2 { // it has measured when the end comes
			close(measuring)
			<-ctx.Done()
		}
		return sdk.InstanceMetrics{Processes: 1}, nil
	}
	r := f.watchMetrics(t.Context(), f.create(`{}`).ID)
	next(t, r, "metrics", &client.InstanceMetrics{})
	<-measuring
	f.service.Drain(t.Context()) // would wait for it otherwise
	next(t, r, "metrics", &client.InstanceMetrics{})
	var p client.Problem
	next(t, r, "error", &p)
	assert.Check(t, cmp.Contains(p.Detail, "shutting down"))
}

func TestTheIntervalOfMetricsIsBounded(t *testing.T) {
	f := start(t)
	f.provider.OnMeasure = func(context.Context, string) (sdk.InstanceMetrics, error) {
		return sdk.InstanceMetrics{Processes: 1}, nil
	}
	path := "/api/v1/instances/" + f.create(`{}`).ID + "/metrics"
	for query, accept := range map[string]string{
		"?interval_ms=99":    wantsEvents,
		"?interval_ms=60001": wantsEvents,
		"?interval_ms=1e3":   wantsEvents,
		"?interval_ms=1000":  "Accept: application/json",
	} {
		assert.Equal(t, f.do(http.MethodGet, path+query, "", accept).problem(http.StatusUnprocessableEntity, "SB010").Field, "interval_ms")
	}
	f.do(http.MethodHead, path, "", wantsEvents).wants(http.StatusOK) // and it ends
}
