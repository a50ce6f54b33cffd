package provider

import (
	"context"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Adopter = (*Provider)(nil)

// adopted is what makes a sandbox another broker's than its metadata says, which E2B never
// changes. Its fields are guarded by Provider.mu.
type adopted struct {
	// from are the brokers whose IDs sandboxes of ours carry, by the sandbox.
	from map[string]string
	// released are the sandboxes that carry our ID and are another broker's.
	released map[string]bool
}

// owns reports whether a sandbox is this broker's.
func (p *Provider) owns(d control.Detail) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if broker := d.Metadata[metaBroker]; broker != p.brokerID {
		return broker != "" && p.adopted.from[d.SandboxID] == broker
	}
	return !p.adopted.released[d.SandboxID]
}

// adoptedFrom are the other brokers whose IDs sandboxes of ours carry.
func (p *Provider) adoptedFrom() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, broker := range p.adopted.from {
		if !slices.Contains(all, broker) {
			all = append(all, broker)
		}
	}
	return all
}

// forgetAdopted is for a sandbox that was ended.
func (p *Provider) forgetAdopted(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.adopted.from, id)
	delete(p.adopted.released, id)
}

// ListOf implements sdk.Adopter.
func (p *Provider) ListOf(ctx context.Context, brokerID string) ([]sdk.Instance, error) {
	found, err := p.carrying(ctx, brokerID)
	if err != nil {
		return nil, p.failure(err)
	}
	var all []sdk.Instance
	for _, detail := range found {
		sb := p.newSandbox(control.Sandbox{SandboxID: detail.SandboxID}, detail.Metadata, detail.StartedAt, detail.EndAt)
		sb.end(nil) // it is nobody's here
		all = append(all, sb.instance())
	}
	return all, nil
}

// Adopt implements sdk.Adopter. E2B cannot change what a sandbox carries, so whose it is
// stays in this process.
func (p *Provider) Adopt(ctx context.Context, instanceID, brokerID string) error {
	if !idForm.MatchString(instanceID) {
		return errNoInstance
	}
	detail, err := again(ctx, p.retry, func(ctx context.Context) (control.Detail, error) { return p.api.Get(ctx, instanceID) })
	switch carried := detail.Metadata[metaBroker]; {
	case isAbsent(err, instanceID):
		return errNoInstance
	case err != nil:
		return p.failure(err)
	case detail.SandboxID != instanceID, carried == "", carried != brokerID && carried != p.brokerID:
		return errNoInstance
	case carried != p.brokerID:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.adopted.from[instanceID] = carried
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.adopted.released, instanceID)
	}
	return nil
}

// Release implements sdk.Adopter.
func (p *Provider) Release(_ context.Context, instanceID string) error {
	p.mu.Lock()
	if p.adopted.from[instanceID] == "" {
		p.adopted.released[instanceID] = true
	}
	delete(p.adopted.from, instanceID)
	p.mu.Unlock()
	p.forget(instanceID)
	return nil
}
