package sdk

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// maxWireMessage bounds the text of an error on the wire. Status details travel
// in HTTP/2 trailers, and megabytes of them end the whole connection.
const maxWireMessage = 4 << 10

// ErrPluginGone is the cause of an Error that ErrorFromStatus makes when the
// connection to a plugin is lost: the plugin died, or is about to be found dead.
var ErrPluginGone = errors.New("the plugin ended")

// ErrStreamReset is the cause of an Error that ErrorFromStatus makes when the plugin, or
// what serves its connection, broke off the one call.
var ErrStreamReset = errors.New("the plugin broke off the call")

// GRPCStatus is how an Error crosses the wire; gRPC calls it by itself.
func (e *Error) GRPCStatus() *status.Status {
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

// ErrorFromStatus turns the error of a gRPC call back into an Error. Nil gives
// nil. Statuses without details come from gRPC itself, not from a provider:
// they become context errors, CodeUnavailable, CodeNotSupported or
// CodeInternal.
func ErrorFromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return Errorf(CodeInternal, "%w", err)
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
		return Errorf(CodeUnavailable, "%w", ErrPluginGone)
	case codes.Internal:
		if strings.HasPrefix(st.Message(), "stream terminated by RST_STREAM") { // grpc-go's words
			return Errorf(CodeInternal, "%w", ErrStreamReset)
		}
		return Errorf(CodeInternal, "%s: %s", st.Code(), shown(st.Message()))
	case codes.Unimplemented:
		return Errorf(CodeNotSupported, "the plugin lacks this call: %s", shown(st.Message()))
	case codes.ResourceExhausted:
		return Errorf(CodeInternal, "a message between broker and plugin was too large: %s", shown(st.Message()))
	default:
		return Errorf(CodeInternal, "%s: %s", st.Code(), shown(st.Message()))
	}
}

func errorFromDetail(detail *providerv1.ErrorDetail) *Error {
	e := &Error{
		Code:       Code(detail.GetCode()),
		Message:    shown(detail.GetMessage()),
		Field:      shown(detail.GetField()),
		Capability: Capability(shown(detail.GetCapability())),
		NoEffect:   detail.GetNoEffect(),
	}
	if !e.Code.Known() {
		e.Message = shown("unknown code " + detail.GetCode() + ": " + e.Message)
		e.Code = CodeInternal
	}
	if after := detail.GetRetryAfter(); after.IsValid() && after.AsDuration() > 0 {
		e.RetryAfter = min(after.AsDuration(), 24*time.Hour)
	}
	return e
}

// wireError makes any error of a provider fit for the wire.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.GRPCStatus().Err()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "deadline exceeded")
	default:
		return Errorf(CodeInternal, "%w", err).GRPCStatus().Err()
	}
}

// grpcCode picks the nearest gRPC code, for tools that know nothing of ours.
func grpcCode(c Code) codes.Code {
	switch c {
	case CodeNotInitialized, CodeUnavailable, CodeConnectionFailed, CodeCreateFailed:
		return codes.FailedPrecondition // not Unavailable: that means a dead plugin
	case CodeInvalidConfig, CodeInvalidRequest:
		return codes.InvalidArgument
	case CodeExecutionTimeout, CodeOutOfMemory:
		return codes.Aborted
	case CodeQuotaExceeded:
		return codes.ResourceExhausted
	case CodeNotAuthenticated:
		return codes.Unauthenticated
	case CodeNotAllowed, CodeBlocked:
		return codes.PermissionDenied
	case CodeNotFound:
		return codes.NotFound
	case CodeConflict:
		return codes.AlreadyExists
	case CodeNotSupported:
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
