package provider

import (
	"context"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Adopter = (*Provider)(nil)

// adopted is what makes a sandbox another broker's than its ID says, which never changes.
type adopted struct {
	mu sync.Mutex
	// from are sandboxes of ours whose IDs are another broker's, and released those that are
	// another broker's by now.
	from, released map[string]bool
}

// add takes down that a sandbox is ours. own says that its ID is ours too.
func (a *adopted) add(id string, own bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !own {
		a.from[id] = true
	}
	delete(a.released, id)
}

func (a *adopted) release(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released[id] = true
	delete(a.from, id)
}

func (a *adopted) isReleased(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.released[id]
}

// forget is for a sandbox that has ended.
func (a *adopted) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.from, id)
	delete(a.released, id)
}

// carries says whether the ID of a sandbox is one of an owner.
func carries(id, owner string) bool {
	return sandboxID.MatchString(id) && strings.HasPrefix(id, owner)
}

// owns says whether a sandbox is this broker's.
func (p *Provider) owns(id string) bool {
	p.adopted.mu.Lock()
	defer p.adopted.mu.Unlock()
	return p.adopted.from[id] || carries(id, p.owner) && !p.adopted.released[id]
}

// ListOf implements sdk.Adopter.
func (p *Provider) ListOf(ctx context.Context, brokerID string) ([]sdk.Instance, error) {
	owner := ownerOf(brokerID, p.label)
	found, err := p.listed(ctx, func(id string) bool { return carries(id, owner) })
	if err != nil {
		return nil, p.explain(ctx, err, sdk.CodeUnavailable, "list the sandboxes of another broker")
	}
	var all []sdk.Instance
	for _, s := range found {
		all = append(all, p.instance(recordOf(s, brokerID)))
	}
	return all, nil
}

// Adopt implements sdk.Adopter. Whose a sandbox is stays in this process. What the records of
// its former owner say and the service does not is found in the sandbox, when it is first used:
// see setup.
func (p *Provider) Adopt(ctx context.Context, instanceID, brokerID string) error {
	own := carries(instanceID, p.owner)
	if !own && !carries(instanceID, ownerOf(brokerID, p.label)) {
		return errNoInstance
	}
	s, err := again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) { return p.data.GetSandbox(ctx, instanceID) })
	switch {
	case isMissing(err), err == nil && (s.Status == agentrun.StatusTerminated || agentrun.Failed(s.Status)):
		return errNoInstance
	case err != nil:
		return p.explain(ctx, err, sdk.CodeUnavailable, "look at the sandbox")
	}
	one, known := p.records.Get(instanceID)
	if !known {
		one = recordOf(s, p.brokerID)
		one.Adopted = true
	}
	one.Paused = s.Status == agentrun.StatusPaused
	if err := p.records.Put(instanceID, one); err != nil {
		return err
	}
	p.adopted.add(instanceID, own)
	return nil
}

// Release implements sdk.Adopter.
func (p *Provider) Release(_ context.Context, instanceID string) error {
	p.adopted.release(instanceID)
	return p.forget(instanceID)
}

// fenced is the data plane of a broker that may lose its lease: it makes and ends no sandbox
// any more then. What goes on in one goes on, and is watched by commands.
type fenced struct {
	dataPlane
	outside dataPlane
}

func (d fenced) CreateSandbox(ctx context.Context, in agentrun.SandboxInput) (agentrun.Sandbox, error) {
	return d.outside.CreateSandbox(ctx, in)
}

func (d fenced) DeleteSandbox(ctx context.Context, id string) error {
	return d.outside.DeleteSandbox(ctx, id)
}
