package guestclient

import (
	"context"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Expect tells the guest that a checkpoint of its sandbox may be taken, and the token with
// which a copy is reached: see stdio.Conn.TakeOver.
func (c *Client) Expect(ctx context.Context, token []byte) error {
	if _, err := c.rpc.Expect(ctx, &guestv1.ExpectRequest{Token: token}); err != nil {
		return fmt.Errorf("announce a checkpoint to the guest: %w", wire.DecodeError(err))
	}
	return nil
}

// GoOn has the guest go on as the original would have, which is no more.
func (c *Client) GoOn(ctx context.Context) error {
	if _, err := c.rpc.Renew(ctx, &guestv1.RenewRequest{Original: true}); err != nil {
		return fmt.Errorf("go on as the original: %w", wire.DecodeError(err))
	}
	return nil
}

// Renew has the guest of a copy be another one than the original, before anything else is
// asked of it. Its contexts have these variables from then on.
func (c *Client) Renew(ctx context.Context, env map[string]string) error {
	if _, err := c.rpc.Renew(ctx, &guestv1.RenewRequest{Env: env}); err != nil {
		return fmt.Errorf("renew the copy: %w", wire.DecodeError(err))
	}
	return nil
}
