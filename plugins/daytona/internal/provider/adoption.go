package provider

import (
	"context"
	"maps"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Adopter = (*Provider)(nil)

// ListOf implements sdk.Adopter.
func (p *Provider) ListOf(ctx context.Context, brokerID string) ([]sdk.Instance, error) {
	found, err := p.carrying(ctx, ownerOf(brokerID, p.label))
	if err != nil {
		return nil, p.explain(ctx, err, sdk.CodeUnavailable, "list the sandboxes of another broker")
	}
	var all []sdk.Instance
	for _, s := range found {
		sb := p.newSandbox(s)
		sb.end() // it is nobody's here
		all = append(all, sb.instance())
	}
	return all, nil
}

// Adopt implements sdk.Adopter. From then on the other broker's provider finds it no more, and
// ends none that it does not find.
func (p *Provider) Adopt(ctx context.Context, instanceID, brokerID string) error {
	if !idForm.MatchString(instanceID) {
		return errNoInstance
	}
	release, err := p.changing.Take(ctx, instanceID)
	if err != nil {
		return err
	}
	defer release()
	s, err := again(ctx, p, func(ctx context.Context) (api.Sandbox, error) { return p.api.Get(ctx, instanceID) })
	owner := s.Labels[labelOwner]
	switch {
	case isMissing(err):
		return errNoInstance
	case err != nil:
		return p.explain(ctx, err, sdk.CodeUnavailable, "look at the sandbox")
	case s.ID != instanceID, s.State == api.Destroying, s.State == api.Destroyed, owner != p.owner && owner != ownerOf(brokerID, p.label):
		return errNoInstance
	}
	if s.State == api.Paused { // only the process that paused it has that in its records
		if err := p.records.Put(s.ID, record{Paused: true}); err != nil {
			return err
		}
	}
	if owner == p.owner {
		return nil
	}
	labels := maps.Clone(s.Labels)
	labels[labelOwner], labels[labelOwn+sdk.LabelBroker] = p.owner, p.brokerID
	_, err = again(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.api.SetLabels(ctx, instanceID, labels)
	})
	return p.explain(ctx, err, sdk.CodeUnavailable, "adopt the sandbox")
}

// Release implements sdk.Adopter.
func (p *Provider) Release(_ context.Context, instanceID string) error { return p.forget(instanceID) }
