package serve

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) ListOf(ctx context.Context, req *providerv1.ListOfRequest) (*providerv1.ListOfResponse, error) {
	p, err := capable[sdk.Adopter](s, sdk.CapabilityAdoption)
	if err != nil {
		return nil, err
	}
	instances, err := p.ListOf(ctx, req.GetBrokerId())
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListOfResponse{}
	for _, i := range instances {
		resp.Instances = append(resp.Instances, wire.EncodeInstance(i))
	}
	return resp, nil
}

func (s *server) Adopt(ctx context.Context, req *providerv1.AdoptRequest) (*providerv1.AdoptResponse, error) {
	p, err := capable[sdk.Adopter](s, sdk.CapabilityAdoption)
	if err != nil {
		return nil, err
	}
	return &providerv1.AdoptResponse{}, p.Adopt(ctx, req.GetInstanceId(), req.GetBrokerId())
}

func (s *server) Release(ctx context.Context, req *providerv1.ReleaseRequest) (*providerv1.ReleaseResponse, error) {
	p, err := capable[sdk.Adopter](s, sdk.CapabilityAdoption)
	if err != nil {
		return nil, err
	}
	return &providerv1.ReleaseResponse{}, p.Release(ctx, req.GetInstanceId())
}
