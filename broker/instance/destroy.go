package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// destroyTimeout bounds one attempt to destroy an instance.
	destroyTimeout = 30 * time.Second
	// destroyRetry is how long after a failed attempt the next one begins.
	destroyRetry = 15 * time.Second
)

// Destroy ends an instance of the tenant, its executions included: they are
// answered as cancelled. It returns when the provider has confirmed; when that
// fails nobody can use the instance any more, the caller may try again, and the
// service does so by itself. Errors carry SB009 or SB013.
func (s *Service) Destroy(ctx context.Context, who tenant.Tenant, id string) error {
	return s.destroy(ctx, who, id, "the instance was destroyed during the execution", func(*entry) {})
}

// destroy does it and tells executions why. hidden gets the entry as soon as nobody
// sees it any more, under mu.
func (s *Service) destroy(ctx context.Context, who tenant.Tenant, id, why string, hidden func(*entry)) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	s.mu.Lock()
	e := s.entries[id]
	if e == nil || e.id.Tenant != who.Name || e.state == creating || e.state == unsettled || e.doomed {
		err := s.absent(who, id)
		s.mu.Unlock()
		return err
	}
	e.stopped = why
	s.hide(e)
	hidden(e)
	s.mu.Unlock()

	// What was begun is finished even if the caller goes away. At the end of a
	// shutdown Shutdown tries again.
	ctx, cancel := s.bounded(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	err := s.end(ctx, e)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errShuttingDown):
		return e.fault(shuttingDown())
	default:
		return e.fault(err)
	}
}

// doom hides an instance at once and destroys it when nobody holds it any more.
func (s *Service) doom(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condemn(e)
}

// undo dooms an instance that was made for something that came to nothing, unless
// somebody else has asked for it meanwhile.
func (s *Service) undo(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.shared {
		s.condemn(e)
	}
}

// condemn does it. The caller holds mu.
func (s *Service) condemn(e *entry) {
	if e.state == live {
		e.doomed = true
		s.hide(e)
	}
}

// destroyLater ends a hidden instance in the background.
func (s *Service) destroyLater(e *entry) {
	s.tasks.Go("destroy", func() {
		_ = s.end(s.cleanup, e) // end has logged it, and the reaper tries again
	})
}

// noteEnd writes down that an instance is no more.
func (s *Service) noteEnd(ctx context.Context, e *entry) error {
	s.mu.Lock()
	ended := e.epitaph()
	s.mu.Unlock()
	if err := s.journalOf(e).End(ctx, ended); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended.Reason != "" {
		s.graves.add(ended)
	}
	e.buried = true
	return nil
}

// end destroys a hidden instance and forgets it. After a failure the reaper
// tries again.
func (s *Service) end(ctx context.Context, e *entry) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	defer context.AfterFunc(s.cleanup, cancel)()

	ctx = s.because(ctx, e)
	provider, err := e.provider.Provider(ctx)
	if err == nil {
		failpoint.Hit(failpoint.DestroyBegin)
		err = provider.Destroy(ctx, e.instance.ID)
	}
	if err == nil || sdk.CodeOf(err) == sdk.CodeNotFound {
		failpoint.Hit(failpoint.DestroyDone)
		err = s.noteEnd(ctx, e)
		failpoint.Hit(failpoint.DestroyNoted)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.forget(e)
		return nil
	}
	e.retryAt = time.Now().Add(destroyRetry)
	s.tasks.Go("note a destruction", func() { s.amend(e, func(r *Record) { r.Ending = true }) })
	s.logger.Warn("destroying an instance did not work; it is tried again", "instance", e.id.String(),
		"provider", e.provider.Label(), "error", err)
	if brokenOff(err) {
		return sdk.Errorf(sdk.CodeUnavailable, "provider %q did not confirm the destruction within %s", e.provider.Label(), destroyTimeout)
	}
	return fmt.Errorf("destroy: %w", providerError(e.provider.Label(), err))
}
