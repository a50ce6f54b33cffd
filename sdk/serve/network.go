package serve

import (
	"context"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) SetNetwork(ctx context.Context, req *providerv1.SetNetworkRequest) (*providerv1.SetNetworkResponse, error) {
	p, err := capable[sdk.NetworkGovernor](s, sdk.CapabilityNetwork)
	if err != nil {
		return nil, err
	}
	policy := sdk.NetworkPolicy{}
	if given := wire.DecodeNetwork(req.GetPolicy()); given != nil {
		policy = *given
	}
	if err := networkpolicy.Validate(policy); err != nil {
		return nil, err
	}
	return &providerv1.SetNetworkResponse{}, p.SetNetwork(ctx, req.GetInstanceId(), policy)
}

func (s *server) FollowNetwork(_ *providerv1.FollowNetworkRequest, stream grpc.ServerStreamingServer[providerv1.FollowNetworkResponse]) error {
	p, err := capable[sdk.NetworkGovernor](s, sdk.CapabilityNetwork)
	if err != nil {
		return err
	}
	return p.FollowNetwork(stream.Context(), func(r sdk.NetworkReport) error { return stream.Send(wire.EncodeNetworkReport(r)) })
}
