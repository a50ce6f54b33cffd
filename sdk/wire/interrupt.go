package wire

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

var _ sdk.Interrupter = (*Client)(nil)

// Interrupt implements sdk.Interrupter.
func (c *Client) Interrupt(ctx context.Context, instanceID, executionID string) error {
	_, err := c.interrupts.Interrupt(ctx, &providerv1.InterruptRequest{InstanceId: instanceID, ExecutionId: executionID})
	return DecodeError(err)
}
