package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.Snapshotter     = (*provider)(nil)
	_ sdk.VolumeKeeper    = (*provider)(nil)
	_ sdk.TemplateBuilder = (*provider)(nil)
)

// Snapshot implements sdk.Snapshotter. The cloud gets a sum of the key, by which it knows
// another one.
func (p *provider) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	var made cloud.Snapshot
	err := p.call(ctx, "snapshot", cloud.SnapshotRequest{
		Instance: req.InstanceID, Labels: req.Labels, Key: req.IdempotencyKey, Sum: sumOf(req.Key), MaxBytes: req.MaxBytes,
	}, &made)
	return snapshotOf(made), err
}

func sumOf(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

func snapshotOf(s cloud.Snapshot) sdk.Snapshot {
	return sdk.Snapshot{ID: s.ID, Labels: s.Labels, Template: s.Template, CreatedAt: s.CreatedAt, Bytes: s.Bytes, Memory: true}
}

// sourceOf is what the cloud is told of a snapshot.
func sourceOf(from *sdk.SnapshotSource) *cloud.Source {
	if from == nil {
		return nil
	}
	return &cloud.Source{ID: from.ID, Sum: sumOf(from.Key)}
}

// DeleteSnapshot implements sdk.Snapshotter.
func (p *provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return p.call(ctx, "drop", cloud.NamedRequest{ID: snapshotID}, nil)
}

// ListSnapshots implements sdk.Snapshotter.
func (p *provider) ListSnapshots(ctx context.Context) ([]sdk.Snapshot, error) {
	return listed(ctx, p, "snapshots", snapshotOf)
}

// listed is what the cloud has for this broker.
func listed[Of, As any](ctx context.Context, p *provider, path string, as func(Of) As) ([]As, error) {
	var all []Of
	if err := p.call(ctx, path, map[string]string{sdk.LabelBroker: p.broker}, &all); err != nil {
		return nil, err
	}
	list := make([]As, 0, len(all))
	for _, one := range all {
		list = append(list, as(one))
	}
	return list, nil
}

// CreateVolume implements sdk.VolumeKeeper.
func (p *provider) CreateVolume(ctx context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
	var made cloud.Volume
	err := p.call(ctx, "allot", cloud.VolumeRequest{Labels: req.Labels, Size: req.Size, From: req.From, Key: req.IdempotencyKey}, &made)
	return volumeOf(made), err
}

func volumeOf(v cloud.Volume) sdk.Volume {
	return sdk.Volume{ID: v.ID, Labels: v.Labels, Size: v.Size, Used: v.Used, CreatedAt: v.CreatedAt}
}

func mountsOf(mounts []sdk.VolumeMount) (all []cloud.Mount) {
	for _, m := range mounts {
		all = append(all, cloud.Mount{Volume: m.VolumeID, Path: m.Path, ReadOnly: m.ReadOnly})
	}
	return all
}

// DeleteVolume implements sdk.VolumeKeeper.
func (p *provider) DeleteVolume(ctx context.Context, volumeID string) error {
	return p.call(ctx, "free", cloud.NamedRequest{ID: volumeID}, nil)
}

// ListVolumes implements sdk.VolumeKeeper.
func (p *provider) ListVolumes(ctx context.Context) ([]sdk.Volume, error) {
	return listed(ctx, p, "volumes", volumeOf)
}

// BuildTemplate implements sdk.TemplateBuilder. The cloud gives up a build whose call has ended.
func (p *provider) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	if err := progress(sdk.TemplateProgress{Step: "ask the cloud"}); err != nil {
		return sdk.BuiltTemplate{}, err
	}
	var built cloud.Template
	err := p.call(ctx, "build", cloud.BuildRequest{Broker: p.broker, Build: req}, &built)
	return templateOf(built), err
}

func templateOf(t cloud.Template) sdk.BuiltTemplate {
	return sdk.BuiltTemplate{Name: t.Name, Image: t.Image, Source: t.Source, Languages: languages, Bytes: 1, BuiltAt: t.BuiltAt}
}

// ListTemplates implements sdk.TemplateBuilder.
func (p *provider) ListTemplates(ctx context.Context) ([]sdk.BuiltTemplate, error) {
	return listed(ctx, p, "templates", templateOf)
}

// RemoveTemplate implements sdk.TemplateBuilder.
func (p *provider) RemoveTemplate(ctx context.Context, image string) error {
	return p.call(ctx, "discard", cloud.NamedRequest{ID: image}, nil)
}
