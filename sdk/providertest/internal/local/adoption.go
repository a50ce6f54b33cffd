package local

import (
	"context"
	"maps"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Adopter = (*Provider)(nil)

// holders are the providers of this process by the directories of the instances that they have.
// What runs in an instance is known to its holder alone, which a cloud would know, and goes to
// who adopts it.
type holders struct {
	mu sync.Mutex
	of map[string]*Provider
}

var held = holders{of: map[string]*Provider{}}

// give has a provider know an instance from now on, which is written down.
func (h *holders) give(p *Provider, i *instance) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return sdk.Errorf(sdk.CodeCreateFailed, "the provider has ended")
	}
	p.instances[i.ID] = i
	h.of[i.dir] = p
	return nil
}

// take has a provider know an instance no more; nil if it did not.
func (h *holders) take(p *Provider, instanceID string) *instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.instances[instanceID]
	if i != nil {
		delete(p.instances, instanceID)
		delete(h.of, i.dir)
	}
	return i
}

// holder is who has the instance of a directory; nil if nobody.
func (h *holders) holder(dir string) *Provider {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[dir]
}

// ListOf implements sdk.Adopter.
func (p *Provider) ListOf(_ context.Context, brokerID string) (list []sdk.Instance, err error) {
	found, err := p.dir.records()
	for _, r := range found {
		if r.BrokerID == brokerID {
			list = append(list, r.Instance)
		}
	}
	return list, err
}

// Adopt implements sdk.Adopter.
func (p *Provider) Adopt(ctx context.Context, instanceID, brokerID string) error {
	if err := sdk.LeaseOf(ctx).Held(); err != nil {
		return err
	}
	p.creating.Lock()
	defer p.creating.Unlock()
	r, err := p.dir.record(instanceID)
	if err != nil || r.BrokerID != brokerID && r.BrokerID != p.brokerID {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	former := held.holder(p.dir.of(r.ID))
	if former == p {
		return nil
	}
	var i *instance
	if former != nil {
		i = held.take(former, r.ID)
	}
	if i == nil { // the process that had it has ended
		i = &instance{record: r}
		p.begin(i)
	}
	i.mu.Lock()
	i.BrokerID, i.Labels = p.brokerID, maps.Clone(i.Labels)
	i.Labels[sdk.LabelBroker] = p.brokerID
	i.expireAt(p, i.ExpiresAt)
	err = i.write()
	i.mu.Unlock()
	if err != nil {
		return err
	}
	return held.give(p, i)
}

// Release implements sdk.Adopter: who adopts an instance takes it from its holder.
func (p *Provider) Release(context.Context, string) error { return nil }
