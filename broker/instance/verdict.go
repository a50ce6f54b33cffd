package instance

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// verdict says what a failed creation means.
type verdict int

const (
	// ours: it failed for a reason of the request or the broker, would elsewhere, and
	// has made nothing.
	ours verdict = iota
	// refused: the provider could not, and has certainly made nothing.
	refused
	// unclear: the provider could not, or did not say, and may have made something.
	unclear
)

// verdictOf is the one place that says whether a creation that failed may have made an
// instance all the same. Only a refusal says that it has not, or a provider that knows:
// a connection that broke and a back end in trouble tell nothing. ctx is that of the call.
func verdictOf(ctx context.Context, err error) verdict {
	if notAsked(err) {
		return ours
	}
	if !answered(ctx, err) {
		return unclear
	}
	code := sdk.CodeOf(err)
	switch {
	case code.LeavesOpen() && !withoutEffect(err):
		return unclear
	case code == sdk.CodeInvalidRequest, code == sdk.CodeNotSupported:
		return ours
	default:
		return refused
	}
}

// noticeDelay is how long a process that makes instances itself may go on with one
// after the call has ended.
const noticeDelay = time.Second

// answered reports whether it was the provider that ended a call, and in its own words.
func answered(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !brokenOff(err) && !errors.Is(err, sdk.ErrPluginGone) && !errors.Is(err, audit.ErrUnrecorded)
}

// processEnded reports whether a call ended with the process of its plugin, so that
// nothing goes on with it.
func processEnded(err error) bool {
	e, ok := errors.AsType[survivor](err)
	return errors.Is(err, sdk.ErrPluginGone) && (!ok || !e.ProcessLives())
}

// survivor is an error of a call whose connection broke, as if the plugin had ended.
type survivor interface {
	error
	// ProcessLives says that the plugin has not, and may go on with the call.
	ProcessLives() bool
}

// brokenOff reports whether a provider ended a call as if its context had ended.
// The caller has made sure that it has not.
func brokenOff(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// doubt is what finding out needs to know of an unclear creation.
type doubt struct {
	// until is from when on a list that lacks it proves that there is none.
	until time.Time
	// good says that what is found is an instance like any other, of which only the
	// answer was lost.
	good bool
	// several attempts were made: one instance that is found is maybe not the only one.
	several bool
	// lived is set when something was found and destroyed.
	lived bool
}

// proofOf is from when on a list that lacks an instance proves that there is none, if its
// creation has ended now. over means that nothing can go on making it.
func proofOf(p Provider, over bool) time.Time {
	switch {
	case !p.Description().Ephemeral:
		return time.Now().Add(failpoint.Hasten(listDelay))
	case over:
		return time.Now()
	default:
		return time.Now().Add(noticeDelay)
	}
}

// judge takes down how the provider answered a creation. ctx is that of the call.
func (s *Service) judge(ctx context.Context, e *entry, took time.Duration, err error) {
	label := e.provider.Label()
	if err == nil {
		e.verdict = ours // whatever it was the last time
		s.router.Succeeded(label, took)
		s.observeCreation(ctx, e, nil)
		return
	}
	e.verdict = verdictOf(ctx, err)
	if !notAsked(err) {
		s.observeCreation(ctx, e, err)
	}
	code := sdk.CodeOf(err)
	ephemeral := e.provider.Description().Ephemeral
	// One of which a cloud says that it could not be made is none to be used, nor is
	// one that the audit log knows nothing certain of, or that a plugin whose call was
	// broken off may be tidying up.
	over := answered(ctx, err) || processEnded(err)
	e.doubt = doubt{good: over && !ephemeral && code != sdk.CodeCreateFailed && !errors.Is(err, audit.ErrUnrecorded)}
	e.doubt.until = proofOf(e.provider, over)
	stopped := errors.Is(ctx.Err(), context.Canceled) || errors.Is(context.Cause(ctx), errShuttingDown)
	if e.verdict != ours && code != sdk.CodeQuotaExceeded && !audit.Refuses(err) && !stopped {
		s.router.Failed(label) // full is not failed
	}
}

// doubtResumed keeps in mind that an earlier process may have made the instance: how
// the creation was answered now speaks for this attempt alone.
func (s *Service) doubtResumed(e *entry) {
	if e.verdict != unclear {
		e.verdict = unclear
		e.doubt = doubt{good: !e.provider.Description().Ephemeral, until: proofOf(e.provider, true)}
	}
	e.doubt.several = true
}
