package instance

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// halfMadeRetry is how long after a failed look for what a creation has left the next
// one comes, at first; the pause doubles up to destroyRetry.
const halfMadeRetry = 500 * time.Millisecond

// halfMadeBound is how long that goes on. A provider that has said nothing for so long
// may be gone; if it is not, it is reconciled again and again.
const halfMadeBound = 10 * time.Minute

// unknownOutcome reports whether a creation that failed may have made an instance all
// the same. Only a refusal says that it has not: a connection that broke and a back
// end in trouble tell nothing.
func unknownOutcome(err error, ephemeral bool) bool {
	if errors.Is(err, audit.ErrUnrecorded) || errors.Is(err, sdk.ErrPluginGone) {
		return true
	}
	if audit.Refuses(err) {
		return false // nobody was asked
	}
	switch sdk.CodeOf(err) {
	case sdk.CodeInternal, sdk.CodeConnectionFailed, sdk.CodeUnavailable:
		return true
	case sdk.CodeCreateFailed:
		// Who makes instances itself knows; who asks a service was told something.
		return !ephemeral
	default:
		return false
	}
}

// resolveHalfMade destroys in the background what a creation that was cut short may
// have left. Until then it counts, and its session gets no other instance. The caller
// holds mu.
func (s *Service) resolveHalfMade(e *entry) {
	e.resolved = make(chan struct{})
	if e.claimed {
		s.halfMade[e.sessionKey()] = e
	}
	s.tasks.Go("destroy a half-made instance", func() {
		defer s.settleHalfMade(e)
		s.destroyHalfMade(e)
	})
}

func (s *Service) settleHalfMade(e *entry) {
	e.permit.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := e.sessionKey(); s.halfMade[key] == e {
		delete(s.halfMade, key)
	}
	close(e.resolved)
}

// awaitResolved waits until it is known what an earlier creation of the session has
// left.
func (s *Service) awaitResolved(ctx context.Context, e *entry) error {
	wait, cancel := s.bounded(ctx, s.limits().CreateTimeout)
	defer cancel()
	select {
	case <-e.resolved:
		return nil
	case <-wait.Done():
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(context.Cause(wait), errShuttingDown):
		return shuttingDown()
	}
	err := sdk.Errorf(sdk.CodeUnavailable, "provider %q has not said yet what an earlier attempt to make this instance has left", e.provider.Label())
	err.RetryAfter = time.Second
	return err
}

// destroyHalfMade looks for what a creation that was cut short may have left behind,
// until the provider has said. When the plugin died it asks the next process: that one
// was reconciled maybe while the creation still counted as known.
func (s *Service) destroyHalfMade(e *entry) {
	since := time.Now()
	for retry := halfMadeRetry; time.Since(since) < halfMadeBound; retry = min(2*retry, destroyRetry) {
		ctx, cancel := context.WithTimeout(s.cleanup, destroyTimeout)
		err := s.destroyLabelled(ctx, e)
		cancel()
		if err == nil {
			return
		}
		s.logger.Warn("an instance may be left over from a creation that failed", "instance", e.id.String(),
			"provider", e.provider.Label(), "error", err)
		timer := time.NewTimer(retry)
		select {
		case <-timer.C:
		case <-s.lifetime.Done():
			timer.Stop()
			return // the next broker finds it
		}
	}
}

func (s *Service) destroyLabelled(ctx context.Context, e *entry) error {
	provider, err := e.provider.Provider(ctx)
	if err != nil {
		return err
	}
	instances, err := s.look(ctx, e.provider.Label(), provider)
	if err != nil {
		return err
	}
	for _, i := range instances {
		if i.Labels[sdk.LabelInstance] == e.id.Instance {
			err = errors.Join(err, provider.Destroy(ctx, i.ID))
		}
	}
	return err
}

// look is a list of one provider that several may share who want to know what there
// is: when a back end fails, many creations fail at once.
type look struct {
	turn  chan struct{} // held by who looks
	began time.Time
	list  []sdk.Instance
	err   error
}

// look returns a list that began after it was asked for.
func (s *Service) look(ctx context.Context, label string, provider sdk.Provider) ([]sdk.Instance, error) {
	asked := time.Now()
	s.mu.Lock()
	l := s.looks[label]
	if l == nil {
		l = &look{turn: make(chan struct{}, 1)}
		s.looks[label] = l
	}
	s.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	if !l.began.After(asked) {
		l.began = time.Now()
		l.list, l.err = provider.List(ctx)
	}
	return l.list, l.err
}
