package provider

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// NewImpatient is New with pauses for tests.
func NewImpatient(logger hclog.Logger) sdk.Provider {
	return newProvider(logger, patience{
		ready:    5 * time.Second,
		looks:    []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond},
		renewals: 100 * time.Millisecond,
		kernels:  time.Minute, // a busy machine is no reason to lose state
		erasures: 100 * time.Millisecond,
	})
}

// ExpectObedience makes the provider restart kernels that are not interrupted so soon.
func (p *Provider) ExpectObedience(within time.Duration) { p.patience.kernels = within }

// Usage is what the provider has counted.
func (p *Provider) Usage() []sdk.Metric { return p.usage.metrics(p.settings.CostPerSecond) }

// BelieveLeft makes the provider believe that a lease is over so soon.
func (p *Provider) BelieveLeft(id string, left time.Duration) {
	p.mu.Lock()
	sb := p.sandboxes[id]
	p.mu.Unlock()
	sb.leased(time.Now().Add(left))
}

// Knows reports whether the provider has a sandbox in its books.
func (p *Provider) Knows(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.sandboxes[id]
	return known
}

// AwaitCreation waits until a creation has ended.
func (p *Provider) AwaitCreation(key string) {
	p.mu.Lock()
	c := p.creations[key]
	p.mu.Unlock()
	<-c.done
}
