package wire

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// Snapshot implements sdk.Snapshotter.
func (c *Client) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	resp, err := c.snapshots.Snapshot(ctx, &providerv1.SnapshotRequest{
		InstanceId: req.InstanceID, Labels: req.Labels, IdempotencyKey: req.IdempotencyKey,
		Key: req.Key, Transient: req.Transient, MaxBytes: req.MaxBytes,
	})
	if err != nil {
		return sdk.Snapshot{}, DecodeError(err)
	}
	return decodeSnapshot(resp.GetSnapshot())
}

// DeleteSnapshot implements sdk.Snapshotter.
func (c *Client) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	_, err := c.snapshots.DeleteSnapshot(ctx, &providerv1.DeleteSnapshotRequest{SnapshotId: snapshotID})
	return DecodeError(err)
}

// ListSnapshots implements sdk.Snapshotter.
func (c *Client) ListSnapshots(ctx context.Context) ([]sdk.Snapshot, error) {
	resp, err := c.snapshots.ListSnapshots(ctx, &providerv1.ListSnapshotsRequest{}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return nil, DecodeError(err)
	}
	snapshots, err := decodeList(resp.GetSnapshots(), decodeSnapshot)
	if err != nil {
		return nil, err
	}
	return snapshots, listedOnce("snapshot", snapshots, func(s sdk.Snapshot) string { return s.ID })
}

// EncodeSnapshot encodes a snapshot.
func EncodeSnapshot(s sdk.Snapshot) *providerv1.Snapshot {
	ws := &providerv1.Snapshot{Id: s.ID, Labels: s.Labels, Template: s.Template, Bytes: s.Bytes, Memory: s.Memory}
	if !s.CreatedAt.IsZero() {
		ws.CreatedAt = timestamppb.New(s.CreatedAt)
	}
	return ws
}

func decodeSnapshot(ws *providerv1.Snapshot) (sdk.Snapshot, error) {
	switch {
	case !instanceID().MatchString(ws.GetId()):
		return sdk.Snapshot{}, misbehaved(fmt.Sprintf("gave a snapshot the ID %.70q, which is not of the form %s", ws.GetId(), instanceID()))
	case len(ws.GetTemplate()) > maxText:
		return sdk.Snapshot{}, misbehaved("gave a snapshot a template that is too long")
	case ws.GetBytes() < 0:
		return sdk.Snapshot{}, misbehaved("gave a snapshot a size below 0")
	}
	if err := boundedFacts(ws.GetLabels()); err != nil {
		return sdk.Snapshot{}, err
	}
	return sdk.Snapshot{
		ID: ws.GetId(), Labels: ws.GetLabels(), Template: ws.GetTemplate(), CreatedAt: decodeTime(ws.GetCreatedAt()),
		Bytes: ws.GetBytes(), Memory: ws.GetMemory(),
	}, nil
}
