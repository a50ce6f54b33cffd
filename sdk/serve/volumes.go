package serve

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) CreateVolume(ctx context.Context, req *providerv1.CreateVolumeRequest) (*providerv1.CreateVolumeResponse, error) {
	p, err := capable[sdk.VolumeKeeper](s, sdk.CapabilityVolumes)
	if err != nil {
		return nil, err
	}
	if req.GetSizeBytes() <= 0 {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "size", "must be positive")
	}
	v, err := p.CreateVolume(ctx, sdk.CreateVolumeRequest{
		Labels: req.GetLabels(), Size: req.GetSizeBytes(), From: req.GetFrom(), IdempotencyKey: req.GetIdempotencyKey(),
	})
	if err != nil {
		return nil, err
	}
	return &providerv1.CreateVolumeResponse{Volume: wire.EncodeVolume(v)}, nil
}

func (s *server) DeleteVolume(ctx context.Context, req *providerv1.DeleteVolumeRequest) (*providerv1.DeleteVolumeResponse, error) {
	p, err := capable[sdk.VolumeKeeper](s, sdk.CapabilityVolumes)
	if err != nil {
		return nil, err
	}
	return &providerv1.DeleteVolumeResponse{}, p.DeleteVolume(ctx, req.GetVolumeId())
}

func (s *server) ListVolumes(ctx context.Context, _ *providerv1.ListVolumesRequest) (*providerv1.ListVolumesResponse, error) {
	p, err := capable[sdk.VolumeKeeper](s, sdk.CapabilityVolumes)
	if err != nil {
		return nil, err
	}
	volumes, err := p.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListVolumesResponse{}
	for _, v := range volumes {
		resp.Volumes = append(resp.Volumes, wire.EncodeVolume(v))
	}
	return resp, nil
}
