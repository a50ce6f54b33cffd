package instance

import (
	"context"
	"slices"
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
// and it takes no executions before Resume. Its time goes on. Errors carry SB008 where the
// tenant may have no more paused instances, SB009, SB013, SB014 while an execution is in
// progress, and SB015. After one that leaves open whether the provider has frozen it, it counts
// as paused.
func (s *Service) Pause(ctx context.Context, who tenant.Tenant, id string) (Info, error) {
	return s.switchPause(ctx, who, id, true)
}

// Resume thaws an instance. One that holds no memory needs room among the instances of its
// tenant: without it, it stays paused, and the error carries SB008. One that runs already is left as it is, and one that is being
// paused because its time is over is waited for.
func (s *Service) Resume(ctx context.Context, who tenant.Tenant, id string) (Info, error) {
	for {
		_, i, err := s.registry.Find(who.Name, id)
		if err != nil {
			return Info{}, s.InstanceElsewhere(ctx, who.Name, id, err)
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
	before := e.Snapshot()
	was := before.Permit.Paused()
	if err := claimSwitch(before, pause); err != nil {
		e.EndSwitch(false)
		return Info{}, faultOf(e, err)
	}
	if pause || was {
		// Before the provider is asked: what may be paused counts as paused, for the next
		// broker too, since a resume is right then in either case. And what may run counts
		// among what runs.
		if err := s.pauses.note(e); err != nil {
			before.Permit.Settle(was)
			e.EndSwitch(false)
			return Info{}, faultOf(e, err)
		}
	}
	released := false
	if pause {
		released, err = pauseBy(ctx, provider, before, lease.InstanceID)
	} else {
		err = provider.Resume(ctx, lease.InstanceID)
	}
	refused := err != nil && refusedFreezing(ctx, err)
	before.Permit.Settle(released || refused && was)
	e.EndSwitch(err == nil || pause && !refused)
	if err != nil {
		err = lease.Fault(ctx, err)
	}
	switch i := e.Snapshot(); {
	case !i.State.MayBePaused():
		if unwritten := s.pauses.note(e); unwritten != nil && err == nil {
			err = faultOf(e, unwritten)
		}
	case i.Permit.Paused():
		s.pauses.noteReleased(e)
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
	if !i.State.MayBePaused() || i.Permit.Paused() {
		p.noteReleased(e)
	}
}

// noteReleased writes down how an instance counts where that does no harm if it cannot be
// written: what is not known to be released counts among those that run.
func (p pauses) noteReleased(e *registry.Entry) {
	p.journal.amend(e.Snapshot(), func(r *Record) { paused(r, e.Snapshot()) })
}

// freeze asks the provider, when the executions have ended, and says what became of it.
func (p pauses) freeze(ctx context.Context, e *registry.Entry) error {
	provider, err := p.providerOf(ctx, e)
	i := e.Snapshot()
	// Where there is no room among the paused ones it counts as before: nobody has asked for
	// this, whom that could be told.
	room := err == nil && claimSwitch(i, true) == nil
	if err == nil {
		if err = p.note(e); err != nil {
			i.Permit.Settle(false)
		}
	}
	if err != nil {
		e.EndPauseFailed(sdk.CodeOf(err) == sdk.CodeNotSupported)
		return err
	}
	released, err := pauseBy(ctx, provider, i, i.Sandbox.ID)
	i.Permit.Settle(released && room)
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

// releases says whether the provider of an instance may give back what a paused one holds.
func releases(i registry.Instance) bool {
	return slices.Contains(i.Provider.Description().Capabilities, sdk.CapabilityPauseReleases)
}

// claimSwitch has the quotas count an instance for what it may be when its provider was asked,
// too. Settle has to follow. One that is paused already is refused no place: it takes none.
func claimSwitch(i registry.Instance, pause bool) error {
	switch {
	case !pause:
		return i.Permit.ClaimResume()
	case !releases(i) || i.State == registry.Paused:
		return nil
	default:
		return i.Permit.ClaimPause()
	}
}

// pauseBy has a provider pause an instance, and says whether that holds no memory then.
func pauseBy(ctx context.Context, provider sdk.Pauser, i registry.Instance, sandboxID string) (released bool, err error) {
	if releaser, may := provider.(sdk.PauseReleaser); may && releases(i) {
		released, err = releaser.PauseReleasing(ctx, sandboxID)
		return released && err == nil, err
	}
	return false, provider.Pause(ctx, sandboxID)
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
	r.Released = r.Paused && i.Permit.Paused()
}
