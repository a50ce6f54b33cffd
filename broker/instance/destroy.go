package instance

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
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
	return s.destroy(ctx, who.Name, id, "the instance was destroyed during the execution", "")
}

// Kill is Destroy for the instance of whomever. The calls of its executions end at
// once, also when its provider does not answer: that is why people kill.
func (s *Service) Kill(ctx context.Context, id string) error {
	return s.destroy(ctx, ownerOf(id), id, errKilled.Error(), registry.ReasonKilled)
}

// ownerOf is the tenant whose instance has that ID, if there is such an instance.
func ownerOf(id string) string {
	name, _, _ := strings.Cut(id, ":")
	return name
}

// destroy does it and tells executions why, and with a reason the owner too.
func (s *Service) destroy(ctx context.Context, owner, id, stopReason, reason string) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	e, i, err := s.registry.Destroy(owner, id, stopReason, reason)
	if err != nil {
		return s.InstanceElsewhere(ctx, owner, id, err)
	}
	if reason == registry.ReasonKilled {
		s.logger.Info("an administrator destroys an instance", "instance", id, "provider", i.Label, "executions", i.Executions)
		s.executions.stop(e, errKilled)
	}
	// What was begun is finished even if the caller goes away. At the end of a
	// shutdown Shutdown tries again.
	ctx, cancel := s.bounded(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	err = s.terminate(ctx, e)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errShuttingDown):
		return faultOf(e, shuttingDown())
	default:
		return faultOf(e, err)
	}
}

// terminateLater ends a hidden instance in the background.
func (s *Service) terminateLater(e *registry.Entry) {
	s.tasks.Go("destroy", func() {
		_ = s.terminate(s.cleanup, e) // it has logged it, and the reaper tries again
	})
}

// terminate destroys a hidden instance and forgets it. After a failure the reaper
// tries again.
func (s *Service) terminate(ctx context.Context, e *registry.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	defer context.AfterFunc(s.cleanup, cancel)()

	i := e.Snapshot()
	ctx = s.withCause(ctx, i)
	provider, err := i.Provider.Provider(ctx)
	if err == nil {
		failpoint.Hit(failpoint.DestroyBegin)
		err = provider.Destroy(ctx, i.Sandbox.ID)
	}
	if err == nil || sdk.CodeOf(err) == sdk.CodeNotFound {
		failpoint.Hit(failpoint.DestroyDone)
		ended := e.Tombstone()
		if err = s.journal.of(i).End(ctx, ended); err == nil {
			e.Terminated(ended)
		}
		failpoint.Hit(failpoint.DestroyNoted)
	}
	if err == nil {
		return nil
	}
	e.TerminationFailed(time.Now().Add(destroyRetry))
	s.tasks.Go("note a destruction", func() { s.journal.amend(i, func(r *Record) { r.Ending = true }) })
	s.logger.Warn("destroying an instance did not work; it is tried again", "instance", i.ID.String(),
		"provider", i.Label, "error", err)
	return providerCall{
		label: i.Label, ctx: ctx,
		broken: sdk.Errorf(sdk.CodeUnavailable, "provider %q did not confirm the destruction within %s", i.Label, destroyTimeout),
	}.told(err)
}

// withCause says why an instance is destroyed, unless ctx says it already.
func (l *lifecycle) withCause(ctx context.Context, i registry.Instance) context.Context {
	if origin.Known(ctx) {
		return ctx
	}
	now, cause := time.Now(), origin.Broker
	switch {
	case !i.Deadline.IsZero() && !now.Before(i.End()):
		cause = origin.Expired
	case i.NotKept:
		cause = origin.NotKept
	case l.isDraining():
		cause = origin.Shutdown
	}
	return origin.With(ctx, origin.Origin{Cause: cause})
}
