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

// Pause implements sdk.Pauser. What only looks on, a watch or whoever reads along,
// stands still with the rest.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	needed, err := i.beginSwitch(true)
	if err != nil || !needed {
		return err
	}
	// Who measures does not ask a guest that is frozen.
	i.measuring.Lock()
	defer i.measuring.Unlock()
	err = p.freeze(ctx, i)
	i.endSwitch(err == nil)
	return err
}

// freeze pauses the sandbox of an instance that nobody uses.
func (p *Provider) freeze(ctx context.Context, i *instance) (err error) {
	// Nobody answers that while it is frozen.
	if i.measured, err = p.measure(ctx, i); err != nil {
		return err
	}
	if err := i.sandbox.Pause(ctx); err != nil {
		// Whatever has been done of it is undone: nobody would thaw what does not
		// count as frozen.
		thawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerBound)
		defer cancel()
		_ = i.sandbox.Resume(thawing) // it fails for one that runs
		return err
	}
	return nil
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	needed, err := i.beginSwitch(false)
	if err != nil || !needed {
		return err
	}
	err = i.sandbox.Resume(ctx)
	i.endSwitch(err != nil)
	return err
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
	if i.isPaused() {
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
