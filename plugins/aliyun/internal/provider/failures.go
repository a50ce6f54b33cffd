package provider

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// explain turns what a call came to into an error for the broker. other is the code of
// answers that mean nothing special.
func (p *Provider) explain(ctx context.Context, err error, other sdk.Code, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return p.secrets.Error(err)
	}
	if place.Known(err) { // who asked knows what it means
		return err
	}
	if ctx.Err() != nil {
		return p.secrets.Error(errors.Join(ctx.Err(), err))
	}
	f, ok := errors.AsType[*agentrun.Failure](err)
	if !ok {
		return p.secrets.Error(sdk.Errorf(sdk.CodeConnectionFailed, "%s: %w", doing, err))
	}
	e := sdk.Errorf(codeOf(f, other), "%s: %w%s", doing, f, advice(f))
	e.RetryAfter = f.RetryAfter
	return p.secrets.Error(e)
}

func codeOf(f *agentrun.Failure, other sdk.Code) sdk.Code {
	switch {
	case f.Throttled():
		return sdk.CodeQuotaExceeded
	case f.Refused():
		return sdk.CodeConnectionFailed
	case f.Missing() && other != sdk.CodeCreateFailed:
		return sdk.CodeNotFound
	case f.Status == http.StatusConflict && other != sdk.CodeCreateFailed:
		return sdk.CodeConflict
	case f.Stray() && other != sdk.CodeConnectionFailed:
		return sdk.CodeUnavailable
	case f.Status >= http.StatusInternalServerError && f.Status != http.StatusInsufficientStorage:
		return sdk.CodeUnavailable
	default:
		return other
	}
}

// blame tells which setting is probably at fault.
func (p *Provider) blame(err, explained error) error {
	e, ok := errors.AsType[*sdk.Error](explained)
	if !ok {
		return explained
	}
	f, _ := errors.AsType[*agentrun.Failure](err)
	_, unknownHost := errors.AsType[*net.DNSError](err)
	switch {
	case f == nil && unknownHost && p.settings.ControlEndpoint == "":
		e.Field = "region"
	case f == nil:
	case strings.HasPrefix(f.Code, "InvalidAccessKeyId"):
		e.Field = "access_key_id"
	case f.Code == "SignatureDoesNotMatch":
		e.Field = "access_key_secret"
	case strings.HasPrefix(f.Code, "InvalidSecurityToken"):
		e.Field = "security_token"
	case f.Code == "ERR_FORBIDDEN", f.Stray() && p.settings.DataEndpoint == "": // of the data plane, where all else is known to be right
		e.Field = "account_id"
	case f.Stray():
		e.Field = "data_endpoint"
	}
	return e
}

// advice says what the service does not.
func advice(f *agentrun.Failure) string {
	switch {
	case f.Code == "InvalidTimeStamp.Expired":
		return "; check the clock of this machine"
	case f.Code == "ERR_FORBIDDEN", f.Status == http.StatusForbidden:
		return "; the key needs rights for agentrun:* and agentrun:InvokeSandbox, and account_id must be that of the primary account"
	case f.Stray():
		return "; that is not how AgentRun says that something is not there: something else answers at this address"
	case f.Refused():
		return "; check access_key_id, access_key_secret and security_token"
	default:
		return ""
	}
}

func isMissing(err error) bool {
	f, ok := errors.AsType[*agentrun.Failure](err)
	return ok && f.Missing()
}

func exists(err error) bool {
	f, ok := errors.AsType[*agentrun.Failure](err)
	return ok && f.Exists()
}

// denied says that a call has certainly changed nothing: the service was not reached, or
// refused.
func denied(err error) bool {
	if remote.NotSent(err) || fence.Refused(err) {
		return true
	}
	f, ok := errors.AsType[*agentrun.Failure](err)
	return ok && !f.Open && !f.Exists() && !f.Stray() && (f.Code == "ERR_NOT_FOUND" || f.Refused() || f.Throttled() || f.Status >= 300 && f.Status < 500 && f.Status != http.StatusRequestTimeout)
}

// repeatable says whether a call that can be repeated is worth it.
func repeatable(err error) bool {
	f, ok := errors.AsType[*agentrun.Failure](err)
	if !ok {
		return !fence.Refused(err)
	}
	return f.Throttled() || f.Stray() || !f.Refused() && !f.Exists() && f.Status >= http.StatusInternalServerError && f.Status != http.StatusInsufficientStorage
}

// worth says whether a call that can be repeated is worth it, and after what pause.
func worth(err error) (time.Duration, bool) {
	f, _ := errors.AsType[*agentrun.Failure](err)
	if f == nil {
		return 0, repeatable(err)
	}
	return f.RetryAfter, repeatable(err)
}
