package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.VolumeKeeper = (*Provider)(nil)

// volumePrefix begins the IDs of volumes, and of nothing else.
const volumePrefix = "volume-"

// volume is a directory beside those of the instances. Nothing holds its size.
type volume struct {
	sdk.Volume
	key string
}

func (p *Provider) volumeDir(id string) string { return filepath.Join(p.stateDir, "volumes", id) }

func noSuchVolume(field string) error {
	return &sdk.Error{Code: sdk.CodeNotFound, Field: field, Message: "no such volume", NoEffect: true}
}

// CreateVolume implements sdk.VolumeKeeper.
func (p *Provider) CreateVolume(_ context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.volumes {
		if req.IdempotencyKey != "" && v.key == req.IdempotencyKey {
			return v.Volume, nil
		}
	}
	if req.Size > 1<<40 {
		return sdk.Volume{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "size", "must be at most 1 TiB")
	}
	v := volume{key: req.IdempotencyKey, Volume: sdk.Volume{ID: volumePrefix + newID(), Labels: req.Labels, Size: req.Size, CreatedAt: time.Now()}}
	if err := os.MkdirAll(p.volumeDir(v.ID), 0o755); err != nil {
		return sdk.Volume{}, err
	}
	if req.From != "" {
		if _, known := p.volumes[req.From]; !known {
			return sdk.Volume{}, errors.Join(noSuchVolume("from"), os.Remove(p.volumeDir(v.ID)))
		}
		if p.hasVolume(req.From) {
			return sdk.Volume{}, errors.Join(sdk.FieldErrorf(sdk.CodeConflict, "from", "is in use"), os.Remove(p.volumeDir(v.ID)))
		}
		if err := os.CopyFS(p.volumeDir(v.ID), os.DirFS(p.volumeDir(req.From))); err != nil {
			return sdk.Volume{}, fmt.Errorf("copy a volume: %w", err)
		}
	}
	p.volumes[v.ID] = v
	return v.Volume, nil
}

// hasVolume reports whether an instance has a volume. It is called with the lock held.
func (p *Provider) hasVolume(id string) bool {
	for _, i := range p.instances {
		if slices.Contains(i.volumes, id) {
			return true
		}
	}
	return false
}

// DeleteVolume implements sdk.VolumeKeeper.
func (p *Provider) DeleteVolume(_ context.Context, volumeID string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.volumes[volumeID]; !known {
		return nil
	}
	if p.hasVolume(volumeID) {
		return sdk.Errorf(sdk.CodeConflict, "an instance has the volume")
	}
	delete(p.volumes, volumeID)
	return os.RemoveAll(p.volumeDir(volumeID))
}

// ListVolumes implements sdk.VolumeKeeper.
func (p *Provider) ListVolumes(context.Context) (all []sdk.Volume, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.volumes {
		all = append(all, v.Volume)
	}
	return all, nil
}

// attach gives an instance its volumes, as links in its workspace: code here sees the
// machine itself, and nothing could be kept from changing them.
func (p *Provider) attach(i *instance, mounts []sdk.VolumeMount) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range mounts {
		below, ok := strings.CutPrefix(m.Path, "/workspace/")
		_, known := p.volumes[m.VolumeID]
		switch {
		case !known:
			return noSuchVolume("volumes")
		case !ok || m.ReadOnly || strings.Contains(below, "/"):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "volumes", "must be in /workspace, and writable")
		}
		if err := os.Symlink(p.volumeDir(m.VolumeID), filepath.Join(i.workspace(), below)); err != nil {
			return err
		}
		i.volumes = append(i.volumes, m.VolumeID)
	}
	return nil
}
