package instancetest

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.NetworkGovernor = (*Served)(nil)

// SetNetwork implements sdk.NetworkGovernor, for a Provider with that capability: Network has it
// then.
func (s *Served) SetNetwork(_ context.Context, id string, policy sdk.NetworkPolicy) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if _, known := s.p.instances[id]; !known {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	s.p.govern(id, &policy)
	return nil
}

// govern notes a policy. The caller holds mu.
func (p *Provider) govern(id string, policy *sdk.NetworkPolicy) {
	if p.networks == nil {
		p.networks = map[string]*sdk.NetworkPolicy{}
	}
	p.networks[id] = policy
}

// FollowNetwork implements sdk.NetworkGovernor: its instances do nothing.
func (s *Served) FollowNetwork(ctx context.Context, _ func(sdk.NetworkReport) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Network is what an instance may reach, nil for nothing.
func (p *Provider) Network(id string) *sdk.NetworkPolicy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if policy := p.networks[id]; policy != nil && len(policy.Rules) > 0 {
		return policy
	}
	return nil
}
