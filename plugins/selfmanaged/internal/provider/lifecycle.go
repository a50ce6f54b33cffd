package provider

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.Pauser    = (*Provider)(nil)
	_ sdk.TTLSetter = (*Provider)(nil)
	_ sdk.Meter     = (*Provider)(nil)
)

// errPaused answers for what a frozen sandbox cannot do.
var errPaused = sdk.Errorf(sdk.CodeConflict, "the instance is paused")

// errPausing answers while it is uncertain whether the sandbox is frozen.
var errPausing = sdk.Errorf(sdk.CodeConflict, "the instance is being paused or resumed")

// find returns an instance that is known.
func (p *Provider) find(instanceID string) (*instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.instances[instanceID]
	if i == nil {
		return nil, &sdk.Error{Code: sdk.CodeNotFound, Message: "no such instance", NoEffect: true}
	}
	return i, nil
}

// use keeps the instance from being paused until done is called, and fails if it
// is paused.
func (i *instance) use() (done func(), err error) {
	if !i.pause.TryRLock() {
		return nil, errPausing
	}
	if i.paused {
		i.pause.RUnlock()
		return nil, errPaused
	}
	return i.pause.RUnlock, nil
}

// Pause implements sdk.Pauser.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	if !i.pause.TryLock() {
		return sdk.Errorf(sdk.CodeConflict, "the instance has executions in progress")
	}
	defer i.pause.Unlock()
	i.measuring.Lock()
	defer i.measuring.Unlock()
	if i.paused {
		return nil
	}
	// Nobody answers that while it is frozen.
	if i.measured, err = p.measure(ctx, i); err != nil {
		return err
	}
	if err := i.sandbox.Pause(ctx); err != nil {
		return err
	}
	i.paused = true
	return nil
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	i.pause.Lock()
	defer i.pause.Unlock()
	i.measuring.Lock()
	defer i.measuring.Unlock()
	if !i.paused {
		return nil
	}
	if err := i.sandbox.Resume(ctx); err != nil {
		return err
	}
	i.paused = false
	return nil
}

// SetTTL implements sdk.TTLSetter.
func (p *Provider) SetTTL(_ context.Context, instanceID string, ttl time.Duration) (time.Time, error) {
	if ttl <= 0 {
		return time.Time{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be positive")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.instances[instanceID]
	if i == nil {
		return time.Time{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	if i.expiry != nil {
		i.expiry.Stop()
	}
	i.ExpiresAt = time.Now().Add(ttl)
	i.expiry = time.AfterFunc(ttl, func() { p.expire(i) })
	return i.ExpiresAt, nil
}

// expire ends an instance whose time is over, unless it was given more at the
// very moment.
func (p *Provider) expire(i *instance) {
	p.mu.Lock()
	over := !time.Now().Before(i.ExpiresAt)
	p.mu.Unlock()
	if over {
		p.lose(i)
	}
}

// InstanceMetrics implements sdk.Meter.
func (p *Provider) InstanceMetrics(ctx context.Context, instanceID string) (sdk.InstanceMetrics, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return sdk.InstanceMetrics{}, err
	}
	if !i.measuring.TryRLock() {
		return sdk.InstanceMetrics{}, errPausing
	}
	defer i.measuring.RUnlock()
	if i.paused {
		return i.measured, nil
	}
	return p.measure(ctx, i)
}

// measure asks the guest what its sandbox uses, and adds the limits.
func (p *Provider) measure(ctx context.Context, i *instance) (sdk.InstanceMetrics, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, answerBound, errNoAnswer)
	defer cancel()
	m, err := i.sandbox.guest.Instance().InstanceMetrics(bounded, "")
	if err != nil {
		return sdk.InstanceMetrics{}, p.explainCall(ctx, bounded, i, err)
	}
	m.CPULimit = float64(p.settings.CPUs)
	m.MemoryLimit, m.ProcessLimit = p.settings.MemoryMB<<20, p.settings.Processes
	if !p.runtime.GVisor() {
		m.Memory = 0 // what the guest sees in use there is the host's
	}
	return m, nil
}
