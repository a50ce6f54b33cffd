package guestclient

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Interrupt interrupts an execution and returns when that was begun. What still runs
// after the grace is killed. The error is ctx's own, ErrGone, or an *sdk.Error: CodeNotFound for an execution that is not
// running.
func (c *Client) Interrupt(ctx context.Context, executionID string, grace time.Duration) error {
	_, err := c.rpc.Interrupt(ctx, &guestv1.InterruptRequest{ExecutionId: executionID, Grace: durationpb.New(grace)})
	return c.explain(ctx, ctx, wire.DecodeError(err))
}
