package provider

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// statusOf is the HTTP status of an answer that says no; 0 for anything else.
func statusOf(err error) int {
	if e, ok := errors.AsType[*e2bhttp.Error](err); ok {
		return e.Status
	}
	return 0
}

// connectCode is the code of an error of the Connect protocol.
func connectCode(err error) string {
	if e, ok := errors.AsType[*e2bhttp.Error](err); ok {
		return e.Code
	}
	return ""
}

// isLost says that there was no answer, or half of one.
func isLost(err error) bool {
	_, lost := errors.AsType[*e2bhttp.LostError](err)
	return lost
}

// isClosedPort says that the sandbox is there, and nothing listens at the port.
func isClosedPort(err error) bool {
	e, ok := errors.AsType[*e2bhttp.Error](err)
	return ok && e.Port > 0
}

// denied says that a call was refused, and nothing done: by a server, or since the lease is over.
func denied(err error) bool {
	status := statusOf(err)
	return status >= 300 && status < 500 && status != http.StatusRequestTimeout || fence.Refused(err)
}

// again makes a call that may be made twice until it succeeds, or patience ends.
func again[T any](ctx context.Context, policy retry.Policy, call func(context.Context) (T, error)) (T, error) {
	return remote.Again(ctx, policy, worth, call)
}

// worth says whether another try is worth it, and after what pause.
func worth(err error) (time.Duration, bool) {
	e, answered := errors.AsType[*e2bhttp.Error](err)
	if !answered {
		return 0, isLost(err)
	}
	return e.RetryAfter, e.Status == http.StatusTooManyRequests && e.RetryAfter > 0 || e.Status >= 500 && !mayNotHelp(e)
}

// mayNotHelp says that another try would end alike.
func mayNotHelp(e *e2bhttp.Error) bool {
	return e.Code == "sandbox_no_compatible_node" || e.Status == http.StatusNotImplemented
}

// failure makes an error of the broker of one of the control API's.
func (p *Provider) failure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !isLost(err) {
		return err
	}
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return err
	}
	return p.redact.Error(codedFailure(err))
}

func codedFailure(err error) error {
	e, answered := errors.AsType[*e2bhttp.Error](err)
	if !answered {
		return sdk.Errorf(sdk.CodeConnectionFailed, "the connection to E2B failed: %w", err)
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sdk.Errorf(sdk.CodeInvalidConfig, "E2B refuses the API key: %w", err)
	case http.StatusNotFound:
		if !e.Own && e.Code == "" {
			return sdk.Errorf(sdk.CodeUnavailable, "something before E2B answers: %w", err)
		}
		return sdk.Errorf(sdk.CodeNotFound, "E2B does not know it: %w", err)
	case http.StatusTooManyRequests:
		full := sdk.Errorf(sdk.CodeQuotaExceeded, "E2B takes no more for now: %w", err)
		full.RetryAfter = e.RetryAfter
		return full
	case http.StatusInsufficientStorage:
		return sdk.Errorf(sdk.CodeQuotaExceeded, "the disk of the sandbox is full: %w", err)
	default:
		unavailable := sdk.Errorf(sdk.CodeUnavailable, "E2B failed: %w", err)
		unavailable.RetryAfter = e.RetryAfter
		return unavailable
	}
}

// explain makes an error of the broker of what a server in a sandbox, or the proxy
// before it, has answered. Where it may be the sandbox that is gone, the API is asked.
func (sb *sandbox) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return err
	}
	if cause := context.Cause(sb.gone); cause != nil && sb.p.life.Err() == nil {
		return errNoInstance
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e, answered := errors.AsType[*e2bhttp.Error](err)
	switch {
	case !answered,
		e.Status == http.StatusBadGateway && (e.Port == 0 || e.Port == envd.Port),
		e.Status == http.StatusServiceUnavailable, e.Status == http.StatusGatewayTimeout, e.Code == "unavailable":
		detail, gone := sb.p.inspect(ctx, sb.id)
		if gone != nil {
			return gone
		}
		if detail.State == control.StatePaused {
			return sdk.Errorf(sdk.CodeConflict, "the instance is paused")
		}
		if !answered || e.Port > 0 {
			return sb.p.redact.Error(sdk.Errorf(sdk.CodeConnectionFailed, "the connection to the sandbox failed: %w", err))
		}
		return sb.p.redact.Error(sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer: %w", err))
	case e.Port > 0:
		return sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens at port %d of the sandbox: %w", e.Port, err)
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return sb.p.redact.Error(sdk.Errorf(sdk.CodeConnectionFailed, "the sandbox refuses its token: %w", err))
	}
	return sb.p.failure(err)
}

// refused says that a call of a server in a sandbox has had no effect: the server or the
// proxy says no, or the API did when it was asked for another token. A proxy that names a
// port may as well have lost the connection before the first byte of the answer.
func refused(err error) bool {
	e, answered := errors.AsType[*e2bhttp.Error](err)
	_, coded := errors.AsType[*sdk.Error](err)
	return coded || answered && e.Proxy && e.Port == 0 || denied(err)
}
