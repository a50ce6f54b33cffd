package wire

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// CreateVolume implements sdk.VolumeKeeper.
func (c *Client) CreateVolume(ctx context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
	resp, err := c.volumes.CreateVolume(ctx, &providerv1.CreateVolumeRequest{
		Labels: req.Labels, SizeBytes: req.Size, From: req.From, IdempotencyKey: req.IdempotencyKey,
	})
	if err != nil {
		return sdk.Volume{}, DecodeError(err)
	}
	return decodeVolume(resp.GetVolume())
}

// DeleteVolume implements sdk.VolumeKeeper.
func (c *Client) DeleteVolume(ctx context.Context, volumeID string) error {
	_, err := c.volumes.DeleteVolume(ctx, &providerv1.DeleteVolumeRequest{VolumeId: volumeID})
	return DecodeError(err)
}

// ListVolumes implements sdk.VolumeKeeper.
func (c *Client) ListVolumes(ctx context.Context) ([]sdk.Volume, error) {
	resp, err := c.volumes.ListVolumes(ctx, &providerv1.ListVolumesRequest{}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return nil, DecodeError(err)
	}
	volumes, err := decodeList(resp.GetVolumes(), decodeVolume)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(volumes))
	for _, v := range volumes {
		if seen[v.ID] {
			return nil, misbehaved(fmt.Sprintf("listed the volume %q twice", v.ID))
		}
		seen[v.ID] = true
	}
	return volumes, nil
}

func decodeVolume(wv *providerv1.Volume) (sdk.Volume, error) {
	if !instanceID().MatchString(wv.GetId()) {
		return sdk.Volume{}, misbehaved(fmt.Sprintf("gave a volume the ID %.70q, which is not of the form %s", wv.GetId(), instanceID()))
	}
	if err := boundedFacts(wv.GetLabels()); err != nil {
		return sdk.Volume{}, err
	}
	return sdk.Volume{
		ID: wv.GetId(), Labels: wv.GetLabels(), Size: max(wv.GetSizeBytes(), 0), Used: max(wv.GetUsedBytes(), 0),
		CreatedAt: decodeTime(wv.GetCreatedAt()),
	}, nil
}

// EncodeVolume encodes a volume.
func EncodeVolume(v sdk.Volume) *providerv1.Volume {
	wv := &providerv1.Volume{Id: v.ID, Labels: v.Labels, SizeBytes: v.Size, UsedBytes: v.Used}
	if !v.CreatedAt.IsZero() {
		wv.CreatedAt = timestamppb.New(v.CreatedAt)
	}
	return wv
}

// DecodeMounts decodes the volumes of an instance and checks them.
func DecodeMounts(list []*providerv1.VolumeMount) ([]sdk.VolumeMount, error) {
	var mounts []sdk.VolumeMount
	for _, m := range list {
		mounts = append(mounts, sdk.VolumeMount{VolumeID: m.GetVolumeId(), Path: m.GetPath(), ReadOnly: m.GetReadOnly()})
	}
	return mounts, sdk.CheckVolumeMounts(mounts)
}
