package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// maxWireMessage bounds the text of an error on the wire. Status details travel
// in HTTP/2 trailers, and megabytes of them end the whole connection.
const maxWireMessage = 4 << 10

// ErrPluginGone is the cause of an Error that DecodeError makes when the
// connection to a plugin is lost: the plugin died, or is about to be found dead.
var ErrPluginGone = errors.New("the plugin ended")

// ErrStreamReset is the cause of an Error that DecodeError makes when the plugin, or
// what serves its connection, broke off the one call.
var ErrStreamReset = errors.New("the plugin broke off the call")

// encodeCoded is how a coded error crosses the wire.
func encodeCoded(e *sdk.Error) *status.Status {
	st := status.New(grpcCode(e.Code), shown(e.Message))
	detail := &providerv1.ErrorDetail{
		Code:       string(e.Code),
		Message:    shown(e.Message),
		Field:      shown(e.Field),
		Capability: shown(string(e.Capability)),
		NoEffect:   e.NoEffect,
	}
	if e.RetryAfter > 0 {
		detail.RetryAfter = durationpb.New(e.RetryAfter)
	}
	if with, err := st.WithDetails(detail); err == nil {
		return with
	}
	return st
}

// DecodeError turns the error of a gRPC call back into an Error. Nil gives
// nil. Statuses without details come from gRPC itself, not from a provider:
// they become context errors, CodeUnavailable, CodeNotSupported or
// CodeInternal.
func DecodeError(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return sdk.Errorf(sdk.CodeInternal, "%w", err)
	}
	for _, d := range st.Details() {
		if detail, ok := d.(*providerv1.ErrorDetail); ok {
			return errorFromDetail(detail)
		}
	}
	switch st.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Unavailable:
		// gRPC's text names the socket, which is a path of the host.
		return sdk.Errorf(sdk.CodeUnavailable, "%w", ErrPluginGone)
	case codes.Internal:
		if strings.HasPrefix(st.Message(), "stream terminated by RST_STREAM") { // grpc-go's words
			return sdk.Errorf(sdk.CodeInternal, "%w", ErrStreamReset)
		}
		return sdk.Errorf(sdk.CodeInternal, "%s: %s", st.Code(), shown(st.Message()))
	case codes.Unimplemented:
		return sdk.Errorf(sdk.CodeNotSupported, "the plugin lacks this call: %s", shown(st.Message()))
	case codes.ResourceExhausted:
		return sdk.Errorf(sdk.CodeInternal, "a message between broker and plugin was too large: %s", shown(st.Message()))
	default:
		return sdk.Errorf(sdk.CodeInternal, "%s: %s", st.Code(), shown(st.Message()))
	}
}

func errorFromDetail(detail *providerv1.ErrorDetail) *sdk.Error {
	e := &sdk.Error{
		Code:       sdk.Code(detail.GetCode()),
		Message:    shown(detail.GetMessage()),
		Field:      shown(detail.GetField()),
		Capability: sdk.Capability(shown(detail.GetCapability())),
		NoEffect:   detail.GetNoEffect(),
	}
	if !e.Code.Known() {
		e.Message = shown("unknown code " + detail.GetCode() + ": " + e.Message)
		e.Code = sdk.CodeInternal
	}
	if after := detail.GetRetryAfter(); after.IsValid() && after.AsDuration() > 0 {
		e.RetryAfter = min(after.AsDuration(), 24*time.Hour)
	}
	return e
}

// EncodeError makes any error of a provider fit for the wire.
func EncodeError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return encodeCoded(e).Err()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "deadline exceeded")
	default:
		return encodeCoded(sdk.Errorf(sdk.CodeInternal, "%w", err)).Err()
	}
}

// EncodeErrors are the options of a gRPC server whose handlers return errors of the SDK,
// and that does no more about them than EncodeError.
func EncodeErrors() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			resp, err := handle(ctx, req)
			return resp, EncodeError(err)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return EncodeError(handle(srv, stream))
		}),
	}
}

// grpcCode picks the nearest gRPC code, for tools that know nothing of ours.
func grpcCode(c sdk.Code) codes.Code {
	switch c {
	case sdk.CodeNotInitialized, sdk.CodeUnavailable, sdk.CodeConnectionFailed, sdk.CodeCreateFailed:
		return codes.FailedPrecondition // not Unavailable: that means a dead plugin
	case sdk.CodeInvalidConfig, sdk.CodeInvalidRequest:
		return codes.InvalidArgument
	case sdk.CodeExecutionTimeout, sdk.CodeOutOfMemory:
		return codes.Aborted
	case sdk.CodeQuotaExceeded:
		return codes.ResourceExhausted
	case sdk.CodeNotAuthenticated:
		return codes.Unauthenticated
	case sdk.CodeNotAllowed, sdk.CodeBlocked:
		return codes.PermissionDenied
	case sdk.CodeNotFound:
		return codes.NotFound
	case sdk.CodeConflict:
		return codes.AlreadyExists
	case sdk.CodeNotSupported:
		return codes.Unimplemented
	default:
		return codes.Internal
	}
}

// shown makes a text fit for the wire and for people: a terminal shall show it, not
// obey it.
func shown(s string) string {
	return validtext.Printable(truncate(s))
}

func truncate(s string) string {
	if len(s) > maxWireMessage {
		s = s[:maxWireMessage]
	}
	return strings.ToValidUTF8(s, "�")
}

// cutText returns at most limit bytes of a text, in valid UTF-8 as the wire wants
// it.
func cutText(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}
