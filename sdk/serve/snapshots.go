package serve

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func checkSnapshotKey(key []byte) error {
	if len(key) != sdk.SnapshotKeyBytes {
		return sdk.Errorf(sdk.CodeInvalidRequest, "the key of a snapshot has %d bytes", sdk.SnapshotKeyBytes)
	}
	return nil
}

func (s *server) Snapshot(ctx context.Context, req *providerv1.SnapshotRequest) (*providerv1.SnapshotResponse, error) {
	p, err := capable[sdk.Snapshotter](s, sdk.CapabilitySnapshots)
	if err != nil {
		return nil, err
	}
	if err := checkSnapshotKey(req.GetKey()); err != nil {
		return nil, err
	}
	made, err := p.Snapshot(ctx, sdk.SnapshotRequest{
		InstanceID: req.GetInstanceId(), Labels: req.GetLabels(), IdempotencyKey: req.GetIdempotencyKey(),
		Key: req.GetKey(), Transient: req.GetTransient(), MaxBytes: max(req.GetMaxBytes(), 0),
	})
	if err != nil {
		return nil, err
	}
	return &providerv1.SnapshotResponse{Snapshot: wire.EncodeSnapshot(made)}, nil
}

func (s *server) DeleteSnapshot(ctx context.Context, req *providerv1.DeleteSnapshotRequest) (*providerv1.DeleteSnapshotResponse, error) {
	p, err := capable[sdk.Snapshotter](s, sdk.CapabilitySnapshots)
	if err != nil {
		return nil, err
	}
	return &providerv1.DeleteSnapshotResponse{}, p.DeleteSnapshot(ctx, req.GetSnapshotId())
}

func (s *server) ListSnapshots(ctx context.Context, _ *providerv1.ListSnapshotsRequest) (*providerv1.ListSnapshotsResponse, error) {
	p, err := capable[sdk.Snapshotter](s, sdk.CapabilitySnapshots)
	if err != nil {
		return nil, err
	}
	snapshots, err := p.ListSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListSnapshotsResponse{}
	for _, snapshot := range snapshots {
		resp.Snapshots = append(resp.Snapshots, wire.EncodeSnapshot(snapshot))
	}
	return resp, nil
}
