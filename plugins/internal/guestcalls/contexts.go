package guestcalls

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

var _ sdk.Contexts = (*Calls)(nil)

// contextBound is the longest that the guest may take to start an interpreter. On
// a busy machine that takes a while.
const contextBound = 30 * time.Second

// CreateContext implements sdk.Contexts.
func (c *Calls) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (created sdk.CodeContext, err error) {
	err = c.askWithin(ctx, contextBound, req.InstanceID, func(ctx context.Context, i Instance, guest *wire.Client) error {
		req.Env = i.Environment(req.Env)
		created, err = guest.CreateContext(ctx, req)
		return err
	})
	return created, err
}

// ListContexts implements sdk.Contexts.
func (c *Calls) ListContexts(ctx context.Context, instanceID string) (list []sdk.CodeContext, err error) {
	err = c.askWithin(ctx, contextBound, instanceID, func(ctx context.Context, _ Instance, guest *wire.Client) error {
		list, err = guest.ListContexts(ctx, instanceID)
		return err
	})
	return list, err
}

// RestartContext implements sdk.Contexts.
func (c *Calls) RestartContext(ctx context.Context, instanceID, contextID string) error {
	return c.askWithin(ctx, contextBound, instanceID, func(ctx context.Context, _ Instance, guest *wire.Client) error {
		return guest.RestartContext(ctx, instanceID, contextID)
	})
}

// DeleteContext implements sdk.Contexts.
func (c *Calls) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	return c.askWithin(ctx, contextBound, instanceID, func(ctx context.Context, _ Instance, guest *wire.Client) error {
		return guest.DeleteContext(ctx, instanceID, contextID)
	})
}
