package provider

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What executions without an instance of their own get.
const (
	oneShotFresh  = "fresh"
	oneShotTenant = "tenant"
)

// keepFor is how long a sandbox waits for its tenant to want it again.
const keepFor = 30 * time.Second

// resetTimeout bounds what a guest may take to empty its sandbox. One that needs longer
// is destroyed.
const resetTimeout = 5 * time.Second

// past is what a sandbox has seen. Whoever has the sandbox has it alone.
type past struct {
	uses  int64
	began time.Time // of the first use
}

// instanceID is the ID of the next instance in the sandbox: another one each time.
func (s *sandbox) instanceID() string {
	s.past.uses++
	if s.past.uses == 1 {
		s.past.began = time.Now()
		return s.ID
	}
	return newID()
}

// reuses says whether the instance may be in a sandbox that its tenant had before, and
// leave it to another one.
func (p *Provider) reuses(req sdk.CreateRequest) bool {
	return req.Reuse && p.settings.OneShot == oneShotTenant && req.Labels[sdk.LabelTenant] != ""
}

// reusable says whether the sandbox of an instance that has ended may be its tenant's
// again: after one execution, which has ended by itself, and nothing else.
func (p *Provider) reusable(i *instance) bool {
	past := i.sandbox.past
	return i.reuse && i.clean.Load() && i.usedOnce() &&
		past.uses < p.settings.OneShotUses && time.Since(past.began) < p.settings.OneShotAge
}

// endedByItself says whether the code has ended as code does, and was not killed.
func endedByItself(result sdk.ExecuteResult) bool {
	return (result.Status == sdk.StatusSucceeded || result.Status == sdk.StatusFailed) && result.ExitCode < 128
}

// handOver empties the sandbox of an instance that has ended and keeps it for the tenant.
// It says whether that has worked: what cannot be emptied must be destroyed.
func (p *Provider) handOver(ctx context.Context, i *instance) bool {
	// Who has asked for the end of the instance may not wait for this.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTimeout)
	defer cancel()
	if err := i.sandbox.guest.Reset(ctx); err != nil {
		p.logger.Info("a sandbox is not handed over but destroyed", "instance", i.ID, "reason", err)
		return false
	}
	p.pool.Keep(i.Labels[sdk.LabelTenant], i.Template, i.sandbox)
	return true
}
