package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// ListOf implements sdk.Adopter.
func (c *Client) ListOf(ctx context.Context, brokerID string) ([]sdk.Instance, error) {
	resp, err := c.adoption.ListOf(ctx, &providerv1.ListOfRequest{BrokerId: brokerID}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return nil, DecodeError(err)
	}
	return decodeInstances(resp.GetInstances())
}

// Adopt implements sdk.Adopter.
func (c *Client) Adopt(ctx context.Context, instanceID, brokerID string) error {
	_, err := c.adoption.Adopt(ctx, &providerv1.AdoptRequest{InstanceId: instanceID, BrokerId: brokerID})
	return DecodeError(err)
}

// Release implements sdk.Adopter.
func (c *Client) Release(ctx context.Context, instanceID string) error {
	_, err := c.adoption.Release(ctx, &providerv1.ReleaseRequest{InstanceId: instanceID})
	return DecodeError(err)
}
