package instance

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// pauseTimeout bounds the freezing and thawing of an instance.
const pauseTimeout = 30 * time.Second

// Pause freezes an instance: its memory and files stay, its processes do not run,
// and it takes no executions before Resume. Its time goes on. Errors carry SB009,
// SB013, SB014 while an execution is in progress, and SB015.
func (s *Service) Pause(ctx context.Context, who tenant.Tenant, id string) (Info, error) {
	return s.switchPause(ctx, who, id, true)
}

// Resume thaws an instance. One that runs already is left as it is.
func (s *Service) Resume(ctx context.Context, who tenant.Tenant, id string) (Info, error) {
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
	}
	err = act(ctx, lease.InstanceID)
	e.EndSwitch(err == nil)
	if err != nil {
		return Info{}, lease.Fault(ctx, err)
	}
	record, cancelNote := s.noting()
	defer cancelNote()
	if err := s.journal.of(e.Snapshot()).Amend(record, e.ID(), func(r *Record) { r.Paused = pause }); err != nil {
		return Info{}, faultOf(e, err)
	}
	return lease.Info(), nil
}
