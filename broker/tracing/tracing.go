// Package tracing has the traces of requests sent to a receiver of OpenTelemetry, by
// OTLP over HTTP, if the configuration names one. It decides which requests have a trace
// that is kept, and whom to believe about that. The parts of a trace are begun with
// package span, wherever the work is done.
//
// A receiver that is slow, hangs or is away costs no request anything: spans wait in a
// queue with a bound, and what does not fit is dropped.
package tracing

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/span"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

const (
	// maxQueue is how many spans wait to be sent; 4096 are some 4 MB.
	maxQueue = 4096
	// batchDelay is how long a span waits for others to be sent with.
	batchDelay = 2 * time.Second
	// exportTimeout bounds the sending of one batch, with what is tried again.
	exportTimeout = 10 * time.Second
	// closeTimeout bounds the sending of what is left when tracing ends.
	closeTimeout = 3 * time.Second
	// maxAnswer bounds what a receiver may answer, in bytes.
	maxAnswer = 64 << 10
	// maxCause bounds what the log has of the cause of a failure, in bytes.
	maxCause = 300
)

// Settings of tracing. The zero value is none.
type Settings struct {
	// Endpoint is the URL of the receiver; "" for no tracing.
	Endpoint string
	// Headers go with each request to it. Their values are secrets.
	Headers map[string]string
	// SampleRatio is the share of requests whose traces are sent, from 0 to 1.
	SampleRatio float64
	// FollowCallers has the traces sent, too, that the caller's traceparent calls sampled.
	FollowCallers bool
	// NameTenants puts the names of tenants into the spans.
	NameTenants bool
}

func (s Settings) equal(other Settings) bool {
	return s.Endpoint == other.Endpoint && s.SampleRatio == other.SampleRatio && s.FollowCallers == other.FollowCallers &&
		s.NameTenants == other.NameTenants && maps.Equal(s.Headers, other.Headers)
}

// Tracing begins traces and sends them. Its methods may be called concurrently.
type Tracing struct {
	logger  hclog.Logger
	version string
	tasks   *background.Group

	mu      sync.Mutex // held while settings are applied
	current atomic.Pointer[pipeline]

	ended, sent, failed atomic.Uint64
}

// pipeline is the way of spans to one receiver.
type pipeline struct {
	settings Settings
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	client   *http.Client
}

// New returns tracing that is off. Close must be called.
func New(logger hclog.Logger, version string) *Tracing {
	return &Tracing{logger: logger, version: version, tasks: background.NewGroup(logger)}
}

// Apply changes the settings. Requests in progress go on with those that they began
// with; what the receiver before has not got yet is sent in the background.
func (t *Tracing) Apply(s Settings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load()
	switch {
	case old == nil && s.Endpoint == "", old != nil && old.settings.equal(s):
		return
	case s.Endpoint == "":
		t.current.Store(nil)
	default:
		s.Headers = maps.Clone(s.Headers)
		next, err := t.open(s)
		if err != nil { // the addresses are known to be ones
			t.logger.Error("traces cannot be sent", "error", redact.New(slices.Collect(maps.Values(s.Headers))...).Text(err.Error()))
		}
		t.current.Store(next)
	}
	if old != nil {
		t.tasks.Go("end a way of traces", func() { old.close() })
	}
}

// open makes the way to a receiver, to which nothing is connected yet.
func (t *Tracing) open(s Settings) (*pipeline, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	client := &http.Client{
		Transport: transport, Timeout: exportTimeout,
		// Headers with secrets go to nobody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	sender, err := otlptrace.New(context.Background(), otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(s.Endpoint), otlptracehttp.WithHeaders(s.Headers), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithMaxResponseSize(maxAnswer), otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: exportTimeout}),
		otlptracehttp.WithHTTPClient(client),
	))
	if err != nil {
		return nil, err
	}
	batches := sdktrace.NewBatchSpanProcessor(
		&exporter{SpanExporter: sender, tracing: t, redactor: redact.New(slices.Collect(maps.Values(s.Headers))...)},
		sdktrace.WithMaxQueueSize(maxQueue), sdktrace.WithBatchTimeout(batchDelay), sdktrace.WithExportTimeout(exportTimeout),
	)
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sampler{ratio: s.SampleRatio, follow: s.FollowCallers}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "sandbox-broker"), attribute.String("service.version", t.version),
		)),
		sdktrace.WithSpanProcessor(counted{batches, &t.ended}),
	)
	return &pipeline{settings: s, provider: provider, tracer: provider.Tracer(span.Scope), client: client}, nil
}

// close sends what is left, within closeTimeout.
func (p *pipeline) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.provider.Shutdown(ctx) // what could not be sent is lost, as it would be while it runs
	p.client.CloseIdleConnections()
}

// Close ends tracing. What is left is sent within 3 seconds; then it returns.
func (t *Tracing) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.current.Swap(nil); p != nil {
		p.close()
	}
	t.tasks.Wait()
}

// Begin begins the span of a request whose caller is known, as a part of the one in ctx, or
// of the trace that the header traceparent names; "" for none. It returns ctx as it is when
// tracing is off. The span is the caller's to end.
func (t *Tracing) Begin(ctx context.Context, traceParent string, began time.Time, name, tenant string, attributes ...attribute.KeyValue) context.Context {
	p := t.current.Load()
	if p == nil {
		return ctx
	}
	if tenant != "" && p.settings.NameTenants {
		attributes = append(attributes, span.Tenant.String(tenant))
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parse(traceParent))
	}
	ctx, _ = p.tracer.Start(ctx, name, trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return ctx
}

// parse reads a header traceparent. The zero value stands for one that is none.
func parse(traceParent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceParent})
	return trace.SpanContextFromContext(ctx)
}

// Counts are how many spans were meant to be sent, were sent, and could not be. What is
// in none of the last two waits, or was dropped for want of room.
func (t *Tracing) Counts() (ended, sent, failed uint64) {
	return t.ended.Load(), t.sent.Load(), t.failed.Load()
}

// sampler decides which traces are sent. The broker rolls its own dice: whoever calls
// chooses the trace's ID, and with the usual sampler by its ID would choose the answer.
type sampler struct {
	ratio  float64
	follow bool
}

// ShouldSample implements sdktrace.Sampler.
func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	sampled := rand.Float64() < s.ratio
	switch {
	case parent.IsValid() && !parent.IsRemote():
		sampled = parent.IsSampled() // a part goes where the whole does
	case parent.IsValid() && s.follow && parent.IsSampled():
		sampled = true
	}
	if sampled {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

// Description implements sdktrace.Sampler.
func (sampler) Description() string { return "sandbox-broker" }

// counted counts the spans that are to be sent.
type counted struct {
	sdktrace.SpanProcessor
	ended *atomic.Uint64
}

// OnEnd implements sdktrace.SpanProcessor.
func (c counted) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.ended.Add(1)
	}
	c.SpanProcessor.OnEnd(s)
}

// exporter counts what is sent, and says in the log when that begins to fail and when it
// works again. One goroutine at a time exports.
type exporter struct {
	sdktrace.SpanExporter
	tracing  *Tracing
	redactor *redact.Redactor
	failing  bool
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error: OpenTelemetry would
// write it to a log of its own.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	n := uint64(len(spans))
	if err != nil {
		e.tracing.failed.Add(n)
		if !e.failing {
			cause := e.redactor.Text(err.Error())
			e.tracing.logger.Warn("traces are not taken; they are dropped until they are", "error", cause[:min(len(cause), maxCause)])
		}
	} else {
		e.tracing.sent.Add(n)
		if e.failing {
			e.tracing.logger.Info("traces are taken again")
		}
	}
	e.failing = err != nil
	return nil
}
