package guestcalls

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

var _ sdk.Ports = (*Calls)(nil)

// dialTimeout is how long a guest may take to connect; it gives up by itself
// before.
const dialTimeout = 10 * time.Second

// DialPort implements sdk.Ports. Connections do not hinder a pause: they stand
// still with everything else, or break where the instance leaves its sandbox.
func (c *Calls) DialPort(ctx context.Context, instanceID string, port uint16) (conn net.Conn, err error) {
	err = c.ask(ctx, instanceID, func(guest *wire.Client) (err error) {
		dialling, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err = guest.DialPort(dialling, instanceID, port)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return sdk.Errorf(sdk.CodeConnectionFailed, "the sandbox does not connect to its port")
		}
		return err
	})
	return conn, err
}
