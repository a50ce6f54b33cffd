// Package otlptest is a receiver of traces for tests, by OTLP over HTTP. It decodes what
// comes by the official messages, and misbehaves as it is told to.
package otlptest

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// Receiver takes traces.
type Receiver struct {
	*httptest.Server

	mu      sync.Mutex
	spans   []*tracev1.Span
	headers []http.Header
	wrong   []string
	status  int           // of the answers; 0 for 200
	hang    chan struct{} // answers wait until it is closed; nil for none
}

// New starts a receiver, which ends with the test. What was no export of traces fails that.
func New(t *testing.T) *Receiver {
	t.Helper()
	r := &Receiver{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		assert.Check(t, len(r.wrong) == 0, "%q", r.wrong)
	})
	return r
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			r.complain(err.Error())
			return
		}
		body = unzipped
	}
	content, err := io.ReadAll(body)
	var export collectorv1.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(content, &export)
	}
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.complain(req.URL.Path + " " + req.Header.Get("Content-Type"))
	}
	r.mu.Lock()
	status, hang := r.status, r.hang
	r.headers = append(r.headers, req.Header.Clone())
	if status == 0 && hang == nil {
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				r.spans = append(r.spans, scope.GetSpans()...)
			}
		}
	}
	r.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-req.Context().Done():
		}
	}
	if status != 0 {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("it was " + req.Header.Get("X-Key")))
	}
}

func (r *Receiver) complain(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, what)
}

// Answer has it answer with a status, 0 for 200, once hang is closed, where that is not nil.
// What it does not answer with 200 at once is not taken.
func (r *Receiver) Answer(status int, hang chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.hang = status, hang
}

// Endpoint is where it takes traces.
func (r *Receiver) Endpoint() string { return r.URL + "/v1/traces" }

// Taken are the spans that it has taken.
func (r *Receiver) Taken() []*tracev1.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Asked are the headers of all requests so far.
func (r *Receiver) Asked() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.headers)
}
