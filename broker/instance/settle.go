package instance

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// An unclear creation stays in the registry, with its session and with what the quotas
// count for it, until the provider has said for certain what it has left: in the state
// unsettled, and for the next process of the broker as the record of its intent.

const (
	// settleGrace is how much longer than the list of a cloud may be late a request
	// waits for certainty that could ask another provider then.
	settleGrace = 15 * time.Second
	// settleCall bounds one look.
	settleCall = 10 * time.Second
	// settlePause lies between the first two looks; it doubles up to maxSettlePause.
	settlePause    = 100 * time.Millisecond
	maxSettlePause = 15 * time.Second
)

// settleTimeout is how long a request with other providers to ask waits for certainty.
func settleTimeout() time.Duration { return failpoint.Hasten(listDelay) + settleGrace }

// unsettle keeps an entry whose creation was unclear, and has it found out what that
// has left. The caller holds mu.
func (s *Service) unsettle(e *entry) {
	e.state, e.unclearAt = unsettled, time.Now()
	close(e.unclear)
	s.tasks.Go("settle a creation", func() { s.settleEntry(e) })
}

// settleEntry looks until it is certain what a creation has left, or until the
// instance's time is over by the provider's own clock, or the broker stops: then the
// next one goes on.
func (s *Service) settleEntry(e *entry) {
	over := e.intended.Add(s.limits().MaxLifetime + s.limits().slack())
	for pause := settlePause; ; pause = min(2*pause, maxSettlePause) {
		last := s.lifetime.Err() != nil
		left, sure, err := s.settleOnce(e)
		switch {
		case s.lost(e), sure && left == nil, time.Now().After(over):
			s.settleAsNothing(e)
			return
		case left != nil:
			s.adoptFound(e, *left)
			return
		case last && e.provider.Description().Ephemeral:
			s.settleAsNothing(e) // it ends with its process
			return
		case last:
			return // its record stays
		}
		if err != nil && pause == settlePause {
			s.logger.Warn("a provider does not say whether it made an instance; it is asked again and again",
				"instance", e.id.String(), "provider", e.provider.Label(), "error", err)
		}
		wait := pause
		if proof := time.Until(e.doubt.until); proof > 0 {
			wait = min(wait, proof)
		}
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-s.lifetime.Done():
			next.Stop()
		}
	}
}

// settleOnce looks once. It returns a good instance that somebody waits for, and else
// destroys what it finds. It is sure when there is none any more.
func (s *Service) settleOnce(e *entry) (left *sdk.Instance, sure bool, err error) {
	ctx, cancel := context.WithTimeout(s.cleanup, settleCall)
	defer cancel()
	ready, err := e.provider.Provider(ctx)
	if err != nil {
		// What ends with the process of the plugin has ended when there is none.
		code := sdk.CodeOf(err)
		down := ctx.Err() == nil && (code == sdk.CodeUnavailable || code == sdk.CodeNotInitialized)
		return nil, down && e.provider.Description().Ephemeral, err
	}
	listed, began, err := s.look(ctx, e.provider, ready)
	if err != nil {
		return nil, false, err
	}
	var found []sdk.Instance
	for _, i := range listed {
		if s.madeFor(e, i) {
			found = append(found, i)
		}
	}
	if len(found) == 1 && e.doubt.good && s.taken(e) {
		return &found[0], true, nil
	}
	for _, i := range found {
		if err := ready.Destroy(ctx, i.ID); err != nil && sdk.CodeOf(err) != sdk.CodeNotFound {
			return nil, false, fmt.Errorf("destroy what a creation has left: %w", err)
		}
		e.doubt.lived = true
	}
	return nil, len(found) > 0 && !e.doubt.several || !began.Before(e.doubt.until), nil
}

// madeFor reports whether an instance that a provider lists is the entry's.
func (s *Service) madeFor(e *entry, i sdk.Instance) bool {
	return i.Labels[sdk.LabelInstance] == e.id.Instance && (s.brokerID == "" || i.Labels[sdk.LabelBroker] == s.brokerID)
}

// taken reports whether what was found becomes the session's instance, since somebody
// waits for it.
func (s *Service) taken(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.waiters > 0 && !e.forsaken && s.lifetime.Err() == nil && e.announce()
}

// lost reports whether the entry was forgotten meanwhile, with its provider.
func (s *Service) lost(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.state != unsettled
}

// adoptFound makes the entry's instance of what was found, as if the answer had not been
// lost.
func (s *Service) adoptFound(e *entry, found sdk.Instance) {
	e.verdict = ours
	ctx, cancel := s.noting()
	defer cancel()
	unnoted, err := true, s.noteGivenUp(ctx, e)
	if err == nil {
		unnoted, err = s.noteMade(e, found)
	} else {
		s.mu.Lock()
		e.instance = found // to be destroyed
		s.mu.Unlock()
	}
	s.finishCreation(e, unnoted, err)
}

// settleAsNothing ends a creation that has left nothing: its session may have another
// instance, from another provider too.
func (s *Service) settleAsNothing(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.verdict = refused
	if e.state == unsettled {
		if !e.doubt.lived {
			e.permit.Cancel()
		}
		s.hide(e)
		s.forget(e)
	}
	close(e.ready)
}

// awaitReady waits until it is certain how a creation has ended. Who waited for it when
// the provider left it unclear, and has nobody else to ask, is told so at once; who came
// later waits for certainty. Who has somebody else to ask does so for as long as its
// patience lasts, and forsakes it then. It returns errMoved when another one has.
func (s *Service) awaitReady(ctx context.Context, e *entry, late bool, way onTheWay) error {
	left := s.leftOf(e)
	var trial <-chan time.Time
	if way.trial {
		over := time.NewTimer(trialPatience)
		defer over.Stop()
		trial = over.C
	}
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-left:
		return errMoved
	case <-trial:
		return s.turnFrom(ctx, e)
	case <-e.unclear:
	}
	var patience time.Duration
	switch {
	case way.trial:
	case way.faithful:
		patience = settleTimeout() - s.unclearFor(e)
	case way.others:
		patience = way.patience.Unclear - s.unclearFor(e)
	case late:
		patience = s.limits().CreateTimeout
	default:
		return s.failureOf(e)
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.watching.Done():
		return shuttingDown()
	case <-left:
		return errMoved
	case <-over.C:
	}
	if way.others {
		return s.turnFrom(ctx, e)
	}
	return stillUnsettled(e)
}

// turnFrom forsakes a creation, unless it is about to end.
func (s *Service) turnFrom(ctx context.Context, e *entry) error {
	if s.forsake(e) {
		return s.forsakenError(e)
	}
	select {
	case <-e.ready: // it has a deadline
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) unclearFor(e *entry) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(e.unclearAt)
}

func (s *Service) failureOf(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.err
}

func stillUnsettled(e *entry) error {
	refusal := sdk.Errorf(sdk.CodeUnavailable, "provider %q has not said yet whether it made the instance, so no other is made in its place", e.provider.Label())
	refusal.RetryAfter = 5 * time.Second
	return refusal
}

// elsewhere returns a creation for the session on a provider other than that one, which
// goes on or of which nobody knows what it has made; nil if there is none.
func (s *Service) elsewhere(key workKey, than string) (e *entry, goesOn bool) {
	providers := s.everyProvider()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range providers {
		e := s.sessions[sessionKey{key.tenant, key.session, p.Label()}]
		if p.Label() != than && e != nil && (e.state == creating || e.state == unsettled) {
			return e, e.state == creating
		}
	}
	return nil, false
}
