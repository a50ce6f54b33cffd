// Package span begins and ends parts of a trace. What it begins belongs to the span in
// the context, and goes where that one does: without one there is none, at no cost. Where
// spans go in the end, and which requests have one, is package tracing.
//
// A span holds words of the broker's own: labels of providers, names of operations, codes
// and sizes. No code, path, environment variable or text of an error ever is in one.
package span

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Scope names what begins the spans.
const Scope = "github.com/sandbox-broker/sandbox-broker"

// Names of attributes that OpenTelemetry has none for.
const (
	Code      = attribute.Key("sandbox.code")
	Provider  = attribute.Key("sandbox.provider")
	Language  = attribute.Key("sandbox.language")
	Status    = attribute.Key("sandbox.status")
	Sent      = attribute.Key("sandbox.bytes_sent")
	Received  = attribute.Key("sandbox.bytes_received")
	Tenant    = attribute.Key("sandbox.tenant")
	RequestID = attribute.Key("sandbox.request_id")
	FrontDoor = attribute.Key("sandbox.front_door")
)

// Start begins a part of the span in the context, which the caller ends.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return begin(ctx, name, trace.SpanKindInternal, attributes)
}

// StartCall is Start for a call of another process.
func StartCall(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return begin(ctx, name, trace.SpanKindClient, attributes)
}

func begin(ctx context.Context, name string, kind trace.SpanKind, attributes []attribute.KeyValue) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx, parent // which does nothing, and ends nothing
	}
	return parent.TracerProvider().Tracer(Scope).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
}

// End ends a span with the code of an error, which marks it as failed; "" for none.
func End(s trace.Span, code sdk.Code) {
	if code != "" {
		s.SetAttributes(Code.String(string(code)))
		s.SetStatus(codes.Error, string(code))
	}
	s.End()
}
