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
	if err := s.beginSwitch(e, pause); err != nil {
		return Info{}, e.fault(err)
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
	s.mu.Lock()
	e.switching, e.frozen = false, false
	if err == nil {
		e.paused = pause
	}
	s.mu.Unlock()
	if err != nil {
		return Info{}, lease.Fault(ctx, err)
	}
	record, cancelNote := s.noting()
	defer cancelNote()
	if err := s.journalOf(e).Amend(record, e.id, func(r *Record) { r.Paused = pause }); err != nil {
		return Info{}, e.fault(err)
	}
	return lease.Info(), nil
}

func (s *Service) beginSwitch(e *entry, pause bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.switching:
		return sdk.Errorf(sdk.CodeConflict, "the instance is being paused or resumed by another request")
	case pause && e.running > 0:
		return sdk.Errorf(sdk.CodeConflict, "the instance has executions in progress; wait for them or interrupt them")
	}
	e.switching, e.frozen = true, pause || e.paused
	return nil
}

// beginExecution counts an execution in, unless the instance is paused.
func (s *Service) beginExecution(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.frozen:
		return sdk.Errorf(sdk.CodeConflict, "the instance is being paused or resumed by another request")
	case e.paused:
		return sdk.Errorf(sdk.CodeConflict, "the instance is paused; resume it first")
	}
	e.running++
	return nil
}

func (s *Service) endExecution(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.running--
}
