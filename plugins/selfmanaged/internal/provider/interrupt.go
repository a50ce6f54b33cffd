package provider

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Interrupter = (*Provider)(nil)

// Interrupt implements sdk.Interrupter.
func (p *Provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	p.mu.Lock()
	i := p.instances[instanceID]
	p.mu.Unlock()
	if i == nil {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	err := i.sandbox.guest.Interrupt(ctx, executionID, p.interruptGrace)
	if errors.Is(err, guestclient.ErrGone) {
		return sdk.Errorf(sdk.CodeNotFound, "the sandbox has ended, and the execution with it")
	}
	return err
}
