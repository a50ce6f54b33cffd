package guestclient

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// ReachAPIServer says whether programs in the sandbox reach the API server of the cluster that
// it is a pod of, at most timeout after it was asked, and where that is.
func (c *Client) ReachAPIServer(ctx context.Context, timeout time.Duration) (address string, reached bool, err error) {
	told, err := c.rpc.ReachAPIServer(ctx, &guestv1.ReachAPIServerRequest{Timeout: durationpb.New(timeout)})
	if err != nil {
		return "", false, c.explain(ctx, ctx, wire.DecodeError(err))
	}
	return told.GetAddress(), told.GetReached(), nil
}
