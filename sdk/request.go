package sdk

import (
	"context"
	"regexp"

	"github.com/hashicorp/go-hclog"
)

// requestIDForm is that of the broker: nothing in a log can be forged with it.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// traceParentForm is that of the W3C's Trace Context, version 00: whoever has made it, a
// later call to a service can carry it as it is.
var traceParentForm = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

type (
	traceParentKey struct{}
	requestIDKey   struct{}
	loggerKey      struct{}
)

// WithCall returns the context of a call of a provider, in which RequestID and Logger
// work. Package serve makes it for each call; a provider needs it only where it tests itself,
// or where work goes on in a context of its own behind the call. An ID
// that is not as the broker makes them is left out.
func WithCall(ctx context.Context, requestID string, logger hclog.Logger) context.Context {
	if requestIDForm.MatchString(requestID) {
		ctx = context.WithValue(ctx, requestIDKey{}, requestID)
		logger = logger.With("request_id", requestID)
	}
	return context.WithValue(ctx, loggerKey{}, logger)
}

// RequestID returns the ID of the request that a call of the provider is made for, as
// it stands in the broker's log, in its audit log and in the header X-Request-Id of
// the answer. It is "" where there is none: the broker has asked by itself. Send it
// to your service if that has a log too. It says nothing about who asked, and must
// not be relied on to be unique: clients may choose it.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// WithTraceParent returns the context of a call that is part of a trace, in which
// TraceParent works. Package serve makes it for each call. What has not the form of one is
// left out. A provider needs it only where it tests itself, or where work goes on in a context
// of its own behind the call.
func WithTraceParent(ctx context.Context, traceParent string) context.Context {
	if !traceParentForm.MatchString(traceParent) {
		return ctx
	}
	return context.WithValue(ctx, traceParentKey{}, traceParent)
}

// TraceParent returns the trace that a call of the provider is a part of, as the header
// traceparent of the W3C's Trace Context has it; "" where there is none. Send it to your
// service only where its operator wants that: it tells which calls belong together.
func TraceParent(ctx context.Context) string {
	parent, _ := ctx.Value(traceParentKey{}).(string)
	return parent
}

// Logger returns the logger of the Factory for what is written during a call: each
// entry has the field request_id, if there is a request. Outside of a call nothing is
// written.
func Logger(ctx context.Context) hclog.Logger {
	if logger, ok := ctx.Value(loggerKey{}).(hclog.Logger); ok {
		return logger
	}
	return hclog.NewNullLogger()
}
