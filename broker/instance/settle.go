package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	e.state = unsettled
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
	if len(found) == 1 && e.doubt.good && s.wanted(e) {
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

// wanted reports whether somebody waits for the entry.
func (s *Service) wanted(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.waiters > 0 && s.lifetime.Err() == nil
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
	unnoted, err := s.noteMade(e, found)
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
// later, or has, waits for certainty.
func (s *Service) awaitReady(ctx context.Context, e *entry, late, others bool) error {
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.unclear:
	}
	var patience time.Duration
	switch {
	case others:
		patience = settleTimeout()
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
	case <-over.C:
	}
	if late {
		return stillUnsettled(e)
	}
	return errors.Join(stillUnsettled(e), s.failureOf(e))
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

// settledElsewhere returns an error as long as a provider other than that one makes an
// instance for the session, or may have made one of which nobody knows.
func (s *Service) settledElsewhere(key workKey, than string) error {
	providers := s.everyProvider()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(providers, func(p Provider) bool {
		e := s.sessions[sessionKey{key.tenant, key.session, p.Label()}]
		return p.Label() != than && e != nil && (e.state == creating || e.state == unsettled)
	})
	if i < 0 {
		return nil
	}
	label := providers[i].Label()
	return &Fault{Provider: label, Err: stillUnsettled(s.sessions[sessionKey{key.tenant, key.session, label}])}
}
