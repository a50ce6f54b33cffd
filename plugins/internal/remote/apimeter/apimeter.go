// Package apimeter counts the requests of a provider to the service behind it, for the
// metrics of the provider: how many there were, how long they took and how they were
// answered. It reads neither addresses nor contents, so that no secret can get into a
// metric.
package apimeter

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxStatuses bounds the values of the label status for each API: a service may answer
// with any.
const maxStatuses = 20

// Values of the label status beside the numbers of HTTP.
const (
	statusNone  = "none"  // there was no answer
	statusOther = "other" // above maxStatuses
)

// Meter counts requests. The zero value is ready to use.
type Meter struct {
	mu     sync.Mutex
	counts map[key]*count
}

type key struct{ api, status string }

type count struct {
	requests int
	took     time.Duration
}

// Watch returns a RoundTripper that has the requests of next counted, under a name for what
// is asked: control, sandbox. A request takes until the header of its answer is there.
func (m *Meter) Watch(api string, next http.RoundTripper) http.RoundTripper {
	return watched{m, api, next}
}

type watched struct {
	meter *Meter
	api   string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := w.next.RoundTrip(req)
	status := statusNone
	if err == nil {
		status = strconv.Itoa(resp.StatusCode)
	}
	w.meter.add(w.api, status, time.Since(began))
	return resp, err
}

// CloseIdleConnections lets http.Client close those of what it wraps.
func (w watched) CloseIdleConnections() {
	if closer, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// WrappedRoundTripper lets client-go find what it wraps.
func (w watched) WrappedRoundTripper() http.RoundTripper { return w.next }

func (m *Meter) add(api, status string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = map[key]*count{}
	}
	k := key{api, status}
	if m.counts[k] == nil && m.statuses(api) >= maxStatuses {
		k.status = statusOther
	}
	if m.counts[k] == nil {
		m.counts[k] = &count{}
	}
	m.counts[k].requests++
	m.counts[k].took += took
}

// statuses are how many an API has. The caller holds mu.
func (m *Meter) statuses(api string) int {
	n := 0
	for k := range m.counts {
		if k.api == api {
			n++
		}
	}
	return n
}

// Metrics are what was counted.
func (m *Meter) Metrics() []sdk.Metric {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []sdk.Metric
	keys := slices.SortedFunc(maps.Keys(m.counts), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.api, b.api), cmp.Compare(a.status, b.status))
	})
	counter := func(name, help string, k key, value float64) {
		all = append(all, sdk.Metric{
			Name: name, Help: help, Kind: sdk.MetricCounter, Value: value,
			Labels: map[string]string{"api": k.api, "status": k.status},
		})
	}
	for _, k := range keys {
		counter("api_requests_total", "Requests to the service behind the provider, by the status of HTTP in the answer: none where there was no answer, 429 where there were too many.",
			k, float64(m.counts[k].requests))
	}
	for _, k := range keys {
		counter("api_request_seconds_total", "Time until the headers of these answers were there.", k, m.counts[k].took.Seconds())
	}
	return all
}
