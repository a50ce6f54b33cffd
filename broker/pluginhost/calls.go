package pluginhost

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/sandbox-broker/sandbox-broker/broker/tracing/span"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// CallObserver is told of the calls of plugins, for metrics. Its methods return at once.
type CallObserver interface {
	// Called is called when a call has ended. The context is that of the call.
	Called(ctx context.Context, c Call)
}

// Call is one call of a plugin that has ended.
type Call struct {
	// Provider by label.
	Provider string
	// Operation is the name of the call in the contract: Create, ReadFile.
	Operation string
	// Code of the error, empty for none. CallCanceled and CallLate are no codes of ours.
	Code sdk.Code
	// Took is the time to the end of the answer, which for a stream is that of the stream.
	Took time.Duration
	// Sent and Received are the bytes of its messages, as they were before they were
	// framed.
	Sent, Received int64
}

// What stands for a code in a Call that the broker has ended itself.
const (
	CallCanceled sdk.Code = "canceled"
	CallLate     sdk.Code = "deadline_exceeded"
)

// servicePrefix is that of the contract's services. What go-plugin has beside them, such
// as the streams of standard output, is no call of a provider.
const servicePrefix = "/sandboxbroker.provider."

// callWatch has the calls of one plugin observed, where there is an observer, and makes
// them parts of the trace that their context has, which the plugin is told of. It is a
// stats.Handler.
type callWatch struct {
	provider string
	observer CallObserver
}

type callKey struct{}

// watchedCall is a call in progress.
type watchedCall struct {
	operation      string
	part           trace.Span
	sent, received atomic.Int64
}

// TagRPC implements stats.Handler.
func (w callWatch) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if !strings.HasPrefix(info.FullMethodName, servicePrefix) {
		return ctx
	}
	operation := info.FullMethodName[strings.LastIndexByte(info.FullMethodName, '/')+1:]
	ctx, part := span.StartCall(ctx, "plugin "+operation, span.Provider.String(w.provider))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if named := carrier[wire.MetadataTraceParent]; named != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, wire.MetadataTraceParent, named)
	}
	return context.WithValue(ctx, callKey{}, &watchedCall{operation: operation, part: part})
}

// HandleRPC implements stats.Handler.
func (w callWatch) HandleRPC(ctx context.Context, event stats.RPCStats) {
	call, ok := ctx.Value(callKey{}).(*watchedCall)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.OutPayload:
		call.sent.Add(int64(event.Length))
	case *stats.InPayload:
		call.received.Add(int64(event.Length))
	case *stats.End:
		c := Call{
			Provider: w.provider, Operation: call.operation, Code: codeOfCall(event.Error), Took: event.EndTime.Sub(event.BeginTime),
			Sent: call.sent.Load(), Received: call.received.Load(),
		}
		call.part.SetAttributes(span.Sent.Int64(c.Sent), span.Received.Int64(c.Received))
		span.End(call.part, c.Code)
		if w.observer != nil {
			w.observer.Called(ctx, c)
		}
	}
}

// TagConn implements stats.Handler.
func (callWatch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (callWatch) HandleConn(context.Context, stats.ConnStats) {}

func codeOfCall(err error) sdk.Code {
	switch status.Code(err) {
	case codes.OK:
		return ""
	case codes.Canceled:
		return CallCanceled
	case codes.DeadlineExceeded:
		return CallLate
	default:
		return sdk.CodeOf(wire.DecodeError(err))
	}
}
