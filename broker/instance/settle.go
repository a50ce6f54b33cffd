package instance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// settleTimeout is how long a request waits until its provider has said what
	// became of a creation. Within it the list of a cloud has had its time.
	settleTimeout = listDelay + 15*time.Second
	// settleCall bounds one question.
	settleCall = 10 * time.Second
	// settlePause lies between the first two questions; it doubles up to
	// maxSettlePause.
	settlePause    = 100 * time.Millisecond
	maxSettlePause = 5 * time.Second
)

// verdict says what a failed creation means for other providers.
type verdict int

const (
	// ours: it failed for a reason of the request or the broker, and would elsewhere.
	ours verdict = iota
	// refused: the provider could not, and has certainly made nothing.
	refused
	// unclear: the provider could not, or did not say, and may have made something.
	unclear
)

// doubt is how it is found out what an unclear creation has left.
type doubt struct {
	// until is from when on a list that lacks it proves that there is none.
	until time.Time
	// good says that what is found is an instance like any other, of which only the
	// answer was lost.
	good bool
}

// judge takes down how the provider answered a creation. ctx is that of the call.
func (s *Service) judge(ctx context.Context, e *entry, took time.Duration, err error) {
	label, now := e.provider.Label(), time.Now()
	e.verdict = ours // whatever it was the last time
	if err == nil {
		s.router.Succeeded(label, took)
		return
	}
	if audit.Refuses(err) || errors.Is(ctx.Err(), context.Canceled) || errors.Is(context.Cause(ctx), errShuttingDown) {
		return
	}
	code := sdk.CodeOf(err)
	answered := ctx.Err() == nil && !brokenOff(err) && !errors.Is(err, sdk.ErrPluginGone)
	if answered {
		switch code {
		case sdk.CodeInvalidRequest, sdk.CodeNotSupported:
			return
		case sdk.CodeQuotaExceeded:
			e.verdict = refused // it works, but is full
			return
		case sdk.CodeNotInitialized, sdk.CodeInvalidConfig, sdk.CodeNotAuthenticated, sdk.CodeNotAllowed:
			s.router.Failed(label)
			e.verdict = refused
			return
		}
	}
	s.router.Failed(label)
	ephemeral := e.provider.Description().Ephemeral
	e.verdict = unclear
	// One of which a cloud says that it could not be made is none to be used.
	e.doubt = doubt{until: now.Add(listDelay), good: !ephemeral && code != sdk.CodeCreateFailed}
	if ephemeral && (answered || errors.Is(err, sdk.ErrPluginGone)) {
		e.doubt.until = now // nobody goes on making it
	}
}

// makeSettled makes an instance. Where other providers may be asked instead, it finds
// out first what an unclear creation has left: an instance, which is taken or
// destroyed, or certainly nothing. If that cannot be found out nobody else is asked.
func (s *Service) makeSettled(ctx context.Context, e *entry, t target, req CreateRequest) (made sdk.Instance, cut bool, err error) {
	made, cut, err = s.makeAdmitted(ctx, e, t, req)
	if err == nil || e.verdict != unclear || !req.way.others {
		return made, cut, err
	}
	found, unsettled := s.settleDoubt(ctx, e)
	switch {
	case unsettled != nil:
		s.logger.Warn("a provider does not say whether it made an instance", "instance", e.id.String(),
			"provider", e.provider.Label(), "error", unsettled)
		return made, true, stillUnsettled(e, err)
	case found != nil:
		return *found, false, nil
	default:
		e.verdict = refused
		e.permit.Cancel()
		return made, false, err
	}
}

func stillUnsettled(e *entry, err error) error {
	refusal := sdk.Errorf(sdk.CodeUnavailable, "provider %q does not say whether it has made the instance, so no other was asked for one", e.provider.Label())
	refusal.RetryAfter = maxSettlePause
	if err == nil {
		return refusal
	}
	return errors.Join(refusal, err)
}

// settleDoubt asks the provider until it is certain what the creation has left.
func (s *Service) settleDoubt(ctx context.Context, e *entry) (found *sdk.Instance, err error) {
	ctx, cancel := s.bounded(ctx, settleTimeout)
	defer cancel()
	for pause := settlePause; ; pause = min(2*pause, maxSettlePause) {
		found, sure, err := s.settleOnce(ctx, e)
		if sure {
			return found, nil
		}
		if proof := time.Until(e.doubt.until); proof > 0 {
			pause = min(pause, proof)
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// settleOnce asks once. It is sure when there is a good instance, or when there is
// none any more.
func (s *Service) settleOnce(ctx context.Context, e *entry) (found *sdk.Instance, sure bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleCall)
	defer cancel()
	asked := time.Now()
	provider, err := e.provider.Provider(ctx)
	if err != nil {
		// What ends with the process of the plugin has ended when there is none.
		code := sdk.CodeOf(err)
		down := ctx.Err() == nil && (code == sdk.CodeUnavailable || code == sdk.CodeNotInitialized)
		return nil, down && e.provider.Description().Ephemeral, err
	}
	listed, err := provider.List(ctx)
	if err != nil {
		return nil, false, err
	}
	left := slices.DeleteFunc(listed, func(i sdk.Instance) bool { return !s.madeFor(e, i) })
	if len(left) == 1 && e.doubt.good {
		return &left[0], true, nil
	}
	for _, i := range left {
		if err := provider.Destroy(ctx, i.ID); err != nil {
			return nil, false, err
		}
	}
	return nil, len(left) > 0 || !asked.Before(e.doubt.until), nil
}

// madeFor reports whether an instance that a provider lists is the entry's.
func (s *Service) madeFor(e *entry, i sdk.Instance) bool {
	return i.Labels[sdk.LabelInstance] == e.id.Instance && (s.brokerID == "" || i.Labels[sdk.LabelBroker] == s.brokerID)
}

// noteUnsettled remembers what a creation may have left, as long as nobody knows: its
// session gets no instance from another provider. The caller holds mu.
func (s *Service) noteUnsettled(e *entry) {
	if !e.claimed {
		return // nobody can ask for it again
	}
	if e.doubt.until.IsZero() {
		e.doubt.until = time.Now().Add(listDelay)
	}
	e.doubt.good = false // it was given up
	key := workKey{e.id.Tenant, e.id.Session}
	s.unsettled[key] = append(s.unsettled[key], e)
}

// settledElsewhere returns an error as long as a provider other than that one may
// have an instance for the session.
func (s *Service) settledElsewhere(ctx context.Context, key workKey, than string) error {
	s.mu.Lock()
	open := slices.Clone(s.unsettled[key])
	s.mu.Unlock()
	for _, e := range open {
		if e.provider.Label() == than || s.resettle(ctx, e) {
			continue
		}
		return &Fault{Provider: e.provider.Label(), Err: stillUnsettled(e, ctx.Err())}
	}
	return nil
}

// resettle asks once more what a creation has left, and forgets it when that is
// certain, or when nobody can know any more.
func (s *Service) resettle(ctx context.Context, e *entry) bool {
	limits := s.limits()
	over := time.Since(e.intended) > limits.MaxLifetime+limits.slack() || labelled(s.everyProvider(), e.provider.Label()) == nil
	if !over {
		if _, sure, _ := s.settleOnce(ctx, e); !sure {
			return false
		}
	}
	key := workKey{e.id.Tenant, e.id.Session}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled[key] = slices.DeleteFunc(s.unsettled[key], func(other *entry) bool { return other == e })
	if len(s.unsettled[key]) == 0 {
		delete(s.unsettled, key)
	}
	return true
}

// resettleAll does it for all that is left on a provider.
func (s *Service) resettleAll(ctx context.Context, p Provider) {
	s.mu.Lock()
	var open []*entry
	for _, entries := range s.unsettled {
		for _, e := range entries {
			if e.provider.Label() == p.Label() {
				open = append(open, e)
			}
		}
	}
	s.mu.Unlock()
	for _, e := range open {
		s.resettle(ctx, e)
	}
}
