package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/reconcile"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// An ambiguous creation stays in the registry, with its session and with what the quotas
// count for it, until the provider has said for certain what it has left; and for the next
// process of the broker as the record of its intent.
//
// It is not waited for longer than Patience.Unclear where another provider could be asked,
// and one by which the broker tries a provider whose circuit is open not longer than
// trialPatience. It is detached then: its session may have another instance, and what it
// makes all the same, or has made, is destroyed when it is found. Until then it stays in
// the registry and counts. That is written down before the next provider is asked.

const (
	// resolveGrace is how much longer than the list of a cloud may be late a request
	// waits for certainty that could ask another provider then.
	resolveGrace = 15 * time.Second
	// resolveCall bounds one look.
	resolveCall = 10 * time.Second
	// resolvePause lies between the first two looks; it doubles up to maxResolvePause.
	resolvePause    = 100 * time.Millisecond
	maxResolvePause = 15 * time.Second
	// trialPatience is how long a request waits for a provider whose circuit is open,
	// where another one is ready.
	trialPatience = time.Second
	// noticeDelay is how long a process that makes instances itself may go on with one
	// after the call has ended.
	noticeDelay = time.Second
)

// errDetached is in the errors of those who have detached a creation.
var errDetached = errors.New("its creation is not waited for")

// resolveTimeout is how long a request with other providers to ask waits for certainty.
func resolveTimeout() time.Duration { return failpoint.Hasten(reconcile.ListDelay) + resolveGrace }

// outcomeOf is the one place that says whether a creation that failed may have made an
// instance all the same. Only a refusal says that it has not, or a provider that knows:
// a connection that broke and a back end in trouble tell nothing. ctx is that of the call.
func outcomeOf(ctx context.Context, err error) registry.Outcome {
	if effect.Refused(err) {
		return registry.Ours
	}
	if !answered(ctx, err) {
		return registry.Uncertain
	}
	code := sdk.CodeOf(err)
	switch {
	case code.LeavesOpen() && !withoutEffect(err):
		return registry.Uncertain
	case code == sdk.CodeInvalidRequest, code == sdk.CodeNotSupported:
		return registry.Ours
	default:
		return registry.Refused
	}
}

// answered reports whether it was the provider that ended a call, and in its own words.
func answered(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !brokenOff(err) && !errors.Is(err, wire.ErrPluginGone) && !effect.Unrecorded(err)
}

// processEnded reports whether a call ended with the process of its plugin, so that
// nothing goes on with it.
func processEnded(err error) bool {
	e, ok := errors.AsType[survivor](err)
	return errors.Is(err, wire.ErrPluginGone) && (!ok || !e.ProcessLives())
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
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNoAnswer)
}

// evidence is what is needed to find out what an ambiguous creation has left.
type evidence struct {
	// proofAt is from when on a list that lacks it proves that there is none.
	proofAt time.Time
	// adoptable says that what is found is an instance like any other, of which only the
	// answer was lost.
	adoptable bool
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
		return time.Now().Add(failpoint.Hasten(reconcile.ListDelay))
	case over:
		return time.Now()
	default:
		return time.Now().Add(noticeDelay)
	}
}

// judge takes down how the provider answered a creation. ctx is that of the call.
func (m *creation) judge(ctx context.Context, took time.Duration, err error) {
	label := m.target.provider.Label()
	if err == nil {
		m.outcome = registry.Ours // whatever it was the last time
		m.router.Succeeded(label, took)
		m.observeCreation(ctx, took, nil)
		return
	}
	m.outcome = outcomeOf(ctx, err)
	if !effect.Refused(err) {
		m.observeCreation(ctx, took, err)
	}
	code := sdk.CodeOf(err)
	// One of which a cloud says that it could not be made is none to be used, nor is
	// one that the audit log knows nothing certain of, or that a plugin whose call was
	// broken off may be tidying up.
	over := answered(ctx, err) || processEnded(err)
	ephemeral := m.target.provider.Description().Ephemeral
	m.search = evidence{
		adoptable: over && !ephemeral && code != sdk.CodeCreateFailed && !effect.Unrecorded(err),
		proofAt:   proofOf(m.target.provider, over),
	}
	stopped := errors.Is(ctx.Err(), context.Canceled) || errors.Is(context.Cause(ctx), errShuttingDown)
	if m.outcome != registry.Ours && code != sdk.CodeQuotaExceeded && !effect.OfRecorder(err) && !stopped {
		m.router.Failed(label) // full is not failed
	}
}

// observeCreation tells how a creation was answered. ctx is that of the call.
func (m *creation) observeCreation(ctx context.Context, took time.Duration, err error) {
	outcome, code := CreateRefused, sdk.CodeOf(err)
	switch {
	case err == nil:
		outcome = CreateMade
	case m.outcome == registry.Uncertain:
		outcome = CreateUnclear
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), err != nil && brokenOff(err) && ctx.Err() == nil:
		code = sdk.CodeCreateFailed // as its caller is told
	case ctx.Err() != nil:
		code = "" // nobody waits for it any more
	}
	if err == nil {
		code = ""
	}
	m.observer.Created(ctx, m.target.provider.Label(), outcome, code, took)
}

// resolve looks until it is certain what a creation has left, or until the
// instance's time is over by the provider's own clock, or the broker stops: then the
// next one goes on.
func (m *creation) resolve(intended time.Time) {
	over := intended.Add(m.limits().MaxLifetime + m.limits().slack())
	ephemeral := m.target.provider.Description().Ephemeral
	for pause := resolvePause; ; pause = min(2*pause, maxResolvePause) {
		last := m.lifetime.Err() != nil
		left, sure, err := m.look()
		switch {
		case !m.e.Snapshot().State.Unclear() && left == nil: // lost with its provider
			return
		case sure && left == nil, time.Now().After(over) && left == nil:
			m.nothing()
			return
		case left != nil:
			m.adopt(*left)
			return
		case last && ephemeral:
			m.nothing() // it ends with its process
			return
		case last:
			return // its record stays
		}
		if err != nil && pause == resolvePause {
			m.logger.Warn("a provider does not say whether it made an instance; it is asked again and again",
				"instance", m.id.String(), "provider", m.target.provider.Label(), "error", err)
		}
		wait := pause
		if proof := time.Until(m.search.proofAt); proof > 0 {
			wait = min(wait, proof)
		}
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-m.lifetime.Done():
			next.Stop()
		}
	}
}

// nothing ends a creation that has left nothing.
func (m *creation) nothing() {
	if m.withdraw() {
		m.e.NotIntended()
	}
	m.e.Nothing(m.search.lived)
}

// look looks once. It returns an adoptable instance that somebody waits for, and else
// destroys what it finds. It is sure when there is none any more.
func (m *creation) look() (left *sdk.Instance, sure bool, err error) {
	ctx, cancel := context.WithTimeout(m.cleanup, resolveCall)
	defer cancel()
	provider := m.target.provider
	ready, err := provider.Provider(ctx)
	if err != nil {
		// What ends with the process of the plugin has ended when there is none.
		code := sdk.CodeOf(err)
		down := ctx.Err() == nil && (code == sdk.CodeUnavailable || code == sdk.CodeNotInitialized)
		return nil, down && provider.Description().Ephemeral, err
	}
	listed, began, err := m.reconciler.List(ctx, provider, ready)
	if err != nil {
		return nil, false, err
	}
	var found []sdk.Instance
	for _, i := range listed {
		if i.Labels[sdk.LabelInstance] == m.id.Instance && (m.brokerID == "" || i.Labels[sdk.LabelBroker] == m.brokerID) {
			found = append(found, i)
		}
	}
	if len(found) == 1 && m.search.adoptable && m.lifetime.Err() == nil && m.e.Found() {
		return &found[0], true, nil
	}
	for _, i := range found {
		if err := ready.Destroy(ctx, i.ID); err != nil && sdk.CodeOf(err) != sdk.CodeNotFound {
			return nil, false, fmt.Errorf("destroy what a creation has left: %w", err)
		}
		m.search.lived = true
	}
	return nil, len(found) > 0 && !m.search.several || !began.Before(m.search.proofAt), nil
}

// adopt makes the entry's instance of what was found, as if the answer had not been
// lost.
func (m *creation) adopt(found sdk.Instance) {
	m.outcome = registry.Ours
	i, err := m.e.Made(found, m.limits().MaxLifetime)
	if err == nil {
		ctx, cancel := m.noting()
		defer cancel()
		if err = m.journal.markSuperseded(ctx, m.e, i.Claimed); err == nil {
			err = m.record(i)
		}
		if err != nil {
			m.outcome = registry.Unrecorded
		}
	}
	m.finish(err)
}

// awaitDecision waits until it is certain how a creation has ended. Who waited for it
// when the provider left it ambiguous, and has nobody else to ask, is told so at once; who
// came later waits for certainty. Who has somebody else to ask does so for as long as its
// patience lasts, and detaches it then. It returns registry.ErrMoved when another one has.
func (c *creations) awaitDecision(ctx context.Context, e *registry.Entry, late bool, a attempt) error {
	var trial <-chan time.Time
	if a.trial {
		over := time.NewTimer(trialPatience)
		defer over.Stop()
		trial = over.C
	}
	i, err := c.until(ctx, e, nil, trial, func(i registry.Instance) bool { return i.State.Unclear() })
	if errors.Is(err, errPatienceOver) {
		return c.turnFrom(ctx, e)
	}
	if err != nil || i.State.Decided() {
		return err
	}
	var patience time.Duration
	switch {
	case a.trial:
	case a.faithful:
		patience = resolveTimeout() - time.Since(i.AmbiguousSince)
	case a.others:
		patience = a.patience.Unclear - time.Since(i.AmbiguousSince)
	case late:
		patience = c.limits().CreateTimeout
	default:
		return i.Failure
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	_, err = c.until(ctx, e, c.watching.Done(), over.C, func(registry.Instance) bool { return false })
	switch {
	case !errors.Is(err, errPatienceOver):
		return err
	case a.others:
		return c.turnFrom(ctx, e)
	default:
		return stillAmbiguous(e)
	}
}

// errPatienceOver is why a wait ended that the caller has bounded.
var errPatienceOver = errors.New("the patience is over")

// until waits until a creation has ended with certainty or reached what the caller wants.
// It returns registry.ErrMoved when somebody detaches the creation meanwhile.
func (c *creations) until(ctx context.Context, e *registry.Entry, stop <-chan struct{}, patience <-chan time.Time, reached func(registry.Instance) bool) (registry.Instance, error) {
	for {
		i := e.Snapshot()
		switch {
		case i.State.Decided():
			return i, nil
		case i.State.Detached():
			return i, registry.ErrMoved
		case reached(i):
			return i, nil
		}
		select {
		case <-i.Changed:
		case <-ctx.Done():
			return i, ctx.Err()
		case <-stop:
			return i, shuttingDown()
		case <-patience:
			return i, errPatienceOver
		}
	}
}

// turnFrom detaches a creation, unless it is about to end.
func (c *creations) turnFrom(ctx context.Context, e *registry.Entry) error {
	if e.Detach() {
		return detachedError(e)
	}
	for {
		i := e.Snapshot()
		if i.State.Decided() {
			return nil
		}
		select {
		case <-i.Changed: // it has a deadline
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// detachedError is for the request that has detached a creation.
func detachedError(e *registry.Entry) error {
	i := e.Snapshot()
	err := i.Failure
	if err == nil {
		err = sdk.Errorf(sdk.CodeUnavailable, "provider %q has not made an instance within %s", i.Label, trialPatience)
	}
	return fmt.Errorf("%w (%w)", err, errDetached)
}

func stillAmbiguous(e *registry.Entry) error {
	refusal := sdk.Errorf(sdk.CodeUnavailable, "provider %q has not said yet whether it made the instance, so no other is made in its place", e.Label())
	refusal.RetryAfter = 5 * time.Second
	return refusal
}
