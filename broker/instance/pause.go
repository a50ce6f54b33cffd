package instance

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// pauseTimeout bounds the freezing and thawing of an instance.
const pauseTimeout = 30 * time.Second

// Pause freezes an instance: its memory and files stay, its processes do not run,
// and it takes no executions before Resume. Its time goes on. Errors carry SB009,
// SB013, SB014 while an execution is in progress, and SB015. After one that leaves open
// whether the provider has frozen it, it counts as paused.
func (s *Service) Pause(ctx context.Context, who tenant.Tenant, id string) (Info, error) {
	return s.switchPause(ctx, who, id, true)
}

// Resume thaws an instance. One that runs already is left as it is, and one that is being
// paused because its time is over is waited for.
func (s *Service) Resume(ctx context.Context, who tenant.Tenant, id string) (Info, error) {
	for {
		_, i, err := s.registry.Find(who.Name, id)
		if err != nil {
			return Info{}, err
		}
		if !i.EndPause {
			break
		}
		select {
		case <-i.Changed:
		case <-ctx.Done():
			return Info{}, ctx.Err()
		}
	}
	return s.switchPause(ctx, who, id, false)
}

func (s *Service) switchPause(ctx context.Context, who tenant.Tenant, id string, pause bool) (Info, error) {
	lease, err := s.Lease(ctx, who, id, sdk.CapabilityPause)
	if err != nil {
		return Info{}, err
	}
	defer lease.Release()
	provider, err := Capable[sdk.Pauser](lease)
	if err != nil {
		return Info{}, err
	}
	e := lease.entry
	// One at a time. What was paused or is to be takes no execution meanwhile; one
	// that runs goes on to, while its provider is asked to make certain of it.
	if err := e.BeginSwitch(pause); err != nil {
		return Info{}, faultOf(e, err)
	}
	// What was begun is finished even if the caller goes away: else nobody would
	// know how the instance is.
	ctx, cancel := s.bounded(context.WithoutCancel(ctx), pauseTimeout)
	defer cancel()
	act := provider.Resume
	if pause {
		act = provider.Pause
		// Before the provider is asked: what may be paused counts as paused, for the next
		// broker too, since a resume is right then in either case.
		if err := s.pauses.note(e); err != nil {
			e.EndSwitch(false)
			return Info{}, faultOf(e, err)
		}
	}
	err = act(ctx, lease.InstanceID)
	e.EndSwitch(err == nil || pause && !refusedFreezing(ctx, err))
	if err != nil {
		err = lease.Fault(ctx, err)
	}
	if !e.Snapshot().State.MayBePaused() {
		if unwritten := s.pauses.note(e); unwritten != nil && err == nil {
			err = faultOf(e, unwritten)
		}
	}
	if err != nil {
		return Info{}, err
	}
	return lease.Info(), nil
}

// pauses freezes instances whose time is over.
type pauses struct {
	*lifecycle
	executions executions
	journal    recorder
}

// later does so in the background.
func (p pauses) later(e *registry.Entry) { p.tasks.Go("pause", func() { p.atEnd(e) }) }

// atEnd freezes an instance whose time is over. What certainly is not frozen is tried
// again, unless it never can be; what may be counts as paused.
func (p pauses) atEnd(e *registry.Entry) {
	ctx, cancel := p.bounded(origin.With(context.Background(), origin.Origin{Cause: origin.Expired}), pauseTimeout)
	defer cancel()
	p.executions.stop(e, errTimeOver)
	err := p.freeze(ctx, e)
	i := e.Snapshot()
	if err != nil && i.State.Visible() {
		p.logger.Warn("pausing an instance at the end of its time did not work", "instance", i.ID.String(),
			"provider", i.Label, "state", i.State.String(), "error", err)
	}
	if !i.State.MayBePaused() {
		p.journal.amend(i, func(r *Record) { paused(r, e.Snapshot()) })
	}
}

// freeze asks the provider, when the executions have ended, and says what became of it.
func (p pauses) freeze(ctx context.Context, e *registry.Entry) error {
	provider, err := p.providerOf(ctx, e)
	if err == nil {
		err = p.note(e)
	}
	if err != nil {
		e.EndPauseFailed(sdk.CodeOf(err) == sdk.CodeNotSupported)
		return err
	}
	err = provider.Pause(ctx, e.Snapshot().Sandbox.ID)
	switch {
	case err == nil, !refusedFreezing(ctx, err):
		e.EndSwitch(true)
	default:
		code := sdk.CodeOf(err)
		e.EndPauseFailed(code == sdk.CodeNotSupported || code == sdk.CodeNotFound)
	}
	return explained(ctx, provider, err)
}

// providerOf waits until the instance has no executions, and returns its provider.
func (p pauses) providerOf(ctx context.Context, e *registry.Entry) (pausing, error) {
	select {
	case <-e.Quiet():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	provider, err := e.Snapshot().Provider.Provider(ctx)
	if err != nil {
		return nil, err
	}
	pauser, ok := provider.(pausing)
	if !ok {
		return nil, sdk.NotSupported(e.Label(), sdk.CapabilityPause)
	}
	return pauser, nil
}

// pausing is a provider that can pause.
type pausing interface {
	sdk.Provider
	sdk.Pauser
}

// refusedFreezing reports whether a pause that failed has certainly frozen nothing. ctx is
// that of the call.
func refusedFreezing(ctx context.Context, err error) bool {
	return effect.Refused(err) || answered(ctx, err) && (withoutEffect(err) || refusal(sdk.CodeOf(err)))
}

// note writes down whether an instance may be paused, as it is when the journal takes
// it: of requests at the same time the last one in the registry is the last one there.
func (p pauses) note(e *registry.Entry) error {
	ctx, cancel := p.noting()
	defer cancel()
	return p.journal.of(e.Snapshot()).Amend(ctx, e.ID(), func(r *Record) { paused(r, e.Snapshot()) })
}

// paused writes into a record whether the instance may be paused, and how long it stays then.
func paused(r *Record, i registry.Instance) {
	if r.Paused = i.State.MayBePaused(); i.PauseAtEnd {
		r.Expires = infoOf(i).ExpiresAt
	}
}
