package guestcalls

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Measure asks the guest of an instance what its sandbox uses. The limits are not in it.
func (c *Calls) Measure(ctx context.Context, instanceID string) (m sdk.InstanceMetrics, err error) {
	err = c.askWithin(ctx, AnswerBound, instanceID, func(ctx context.Context, _ Instance, guest *wire.Client) error {
		m, err = guest.InstanceMetrics(ctx, instanceID)
		return err
	})
	return m, err
}
