package audited

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// CreateVolume records the making of a volume: to is the name that the broker gives it, path
// the ID of what it is a copy of.
func (p *provider) CreateVolume(ctx context.Context, req sdk.CreateVolumeRequest) (made sdk.Volume, err error) {
	e := p.recorder.effect(ctx, OpCreateVolume, "")
	e.Tenant, e.Path, e.To = req.Labels[sdk.LabelTenant], req.From, req.Labels[sdk.LabelVolume]
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		made, err = p.client.CreateVolume(ctx, req)
		if err == nil {
			o.Made, o.Bytes = made.ID, &made.Size
		}
		return err
	})
	return made, err
}

// DeleteVolume records the removal of a volume with all that is in it.
func (p *provider) DeleteVolume(ctx context.Context, volumeID string) error {
	return p.recorder.record(ctx, p.recorder.effect(ctx, OpDeleteVolume, volumeID), func(*audit.Outcome) error {
		return p.client.DeleteVolume(ctx, volumeID)
	})
}
