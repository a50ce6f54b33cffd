package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/api"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// explain turns what a call came to into an error for the broker. other is the code of
// answers that mean nothing special.
func (p *Provider) explain(ctx context.Context, err error, other sdk.Code, doing string) error {
	if err == nil || place.Known(err) { // who asked knows what that means
		return p.secrets.Error(err)
	}
	if ctx.Err() != nil {
		return p.secrets.Error(errors.Join(context.Cause(ctx), err))
	}
	e, answered := errors.AsType[*api.Error](err)
	if !answered {
		return p.secrets.Error(sdk.Errorf(sdk.CodeConnectionFailed, "%s: %w", doing, err))
	}
	made := sdk.Errorf(codeOf(e, other), "%s: %w", doing, e)
	made.RetryAfter = e.RetryAfter
	return p.secrets.Error(made)
}

func codeOf(e *api.Error, other sdk.Code) sdk.Code {
	switch {
	case e.Status == http.StatusTooManyRequests:
		return sdk.CodeQuotaExceeded
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return sdk.CodeConnectionFailed
	case e.Status == http.StatusNotFound && !e.Stray && other != sdk.CodeConnectionFailed:
		return sdk.CodeNotFound
	case e.Status == http.StatusConflict:
		return sdk.CodeConflict
	case e.Status >= http.StatusInternalServerError, e.Status == http.StatusRequestTimeout:
		return sdk.CodeUnavailable
	}
	return other
}

// explainCreation says why there is no sandbox. Only the text tells a quota from what is
// wrong with the request: both are 400.
func (p *Provider) explainCreation(ctx context.Context, err error) error {
	e, answered := errors.AsType[*api.Error](err)
	if !answered || e.Status != http.StatusBadRequest && e.Status != http.StatusNotFound && e.Status != http.StatusForbidden {
		return p.explain(ctx, err, sdk.CodeCreateFailed, "make a sandbox")
	}
	text := strings.ToLower(e.Message)
	has := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(text, word) {
				return true
			}
		}
		return false
	}
	code, advice := sdk.CodeInvalidConfig, "Daytona refuses to make such a sandbox (snapshot, image, target, cpus, memory_gb, disk_gb)"
	switch {
	case e.Status == http.StatusForbidden && has("suspended"):
		code, advice = sdk.CodeQuotaExceeded, "Daytona has suspended the organization"
	case e.Status == http.StatusForbidden:
		code, advice = sdk.CodeConnectionFailed, "the key may not make sandboxes"
	case has("total", "quota", "exceeded", "concurrent") && !has("per sandbox"):
		code, advice = sdk.CodeQuotaExceeded, "the organization has no room for another sandbox"
	}
	return p.secrets.Error(sdk.Errorf(code, "%s: %w", advice, e))
}

// blame tells which setting is probably at fault.
func (p *Provider) blame(err, explained error) error {
	e, ok := errors.AsType[*sdk.Error](explained)
	if !ok {
		return explained
	}
	switch failed, _ := errors.AsType[*api.Error](err); {
	case failed == nil:
	case failed.Status == http.StatusUnauthorized, failed.Status == http.StatusForbidden:
		e.Code, e.Field = sdk.CodeInvalidConfig, "api_key"
	case failed.Stray, failed.Status == http.StatusNotFound:
		e.Field = "api_url"
	}
	return e
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Status
	}
	return 0
}

// isMissing says that Daytona knows of no such sandbox.
func isMissing(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Status == http.StatusNotFound && !e.Stray
}

// denied says that a call has certainly changed nothing: Daytona was not reached, or refused, or
// the lease is over.
func denied(err error) bool {
	if _, unheard := errors.AsType[*unheard](err); unheard || remote.NotSent(err) || fence.Refused(err) {
		return true
	}
	status := statusOf(err)
	return status >= 300 && status < 500 && status != http.StatusRequestTimeout
}

// worth says whether a call that can be repeated is worth it, and after what pause.
func worth(err error) (time.Duration, bool) {
	e, answered := errors.AsType[*api.Error](err)
	if !answered {
		_, ours := errors.AsType[*sdk.Error](err)
		return 0, !ours
	}
	return e.RetryAfter, e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
}
