package provider

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Contexts = (*Provider)(nil)

// contextBound is the longest that the guest may take to start an interpreter. On
// a busy machine that takes a while.
const contextBound = 30 * time.Second

// CreateContext implements sdk.Contexts.
func (p *Provider) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (created sdk.CodeContext, err error) {
	err = p.inContexts(ctx, req.InstanceID, func(ctx context.Context, i *instance) error {
		req.Env = i.environment(req.Env)
		created, err = i.sandbox.guest.Instance().CreateContext(ctx, req)
		return err
	})
	return created, err
}

// ListContexts implements sdk.Contexts.
func (p *Provider) ListContexts(ctx context.Context, instanceID string) (list []sdk.CodeContext, err error) {
	err = p.inContexts(ctx, instanceID, func(ctx context.Context, i *instance) error {
		list, err = i.sandbox.guest.Instance().ListContexts(ctx, instanceID)
		return err
	})
	return list, err
}

// RestartContext implements sdk.Contexts.
func (p *Provider) RestartContext(ctx context.Context, instanceID, contextID string) error {
	return p.inContexts(ctx, instanceID, func(ctx context.Context, i *instance) error {
		return i.sandbox.guest.Instance().RestartContext(ctx, instanceID, contextID)
	})
}

// DeleteContext implements sdk.Contexts.
func (p *Provider) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	return p.inContexts(ctx, instanceID, func(ctx context.Context, i *instance) error {
		return i.sandbox.guest.Instance().DeleteContext(ctx, instanceID, contextID)
	})
}

// inContexts makes a call of an instance's guest that may start an interpreter. The
// instance is not paused meanwhile.
func (p *Provider) inContexts(ctx context.Context, instanceID string, call func(ctx context.Context, i *instance) error) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	done, err := i.use()
	if err != nil {
		return err
	}
	defer done()
	bounded, cancel := context.WithTimeoutCause(ctx, contextBound, errNoAnswer)
	defer cancel()
	return p.guestError(ctx, bounded, i, call(bounded, i))
}
