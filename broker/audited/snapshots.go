package audited

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The operations on snapshots. OpLoseSnapshot is nobody's doing: the provider does not have
// it any more.
const (
	OpSnapshot       = "create_snapshot"
	OpDeleteSnapshot = "delete_snapshot"
	OpLoseSnapshot   = "lose_snapshot"
)

// Snapshot records that an instance is kept as it is. Keys are in no line.
func (p *provider) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (made sdk.Snapshot, err error) {
	e := p.recorder.effect(ctx, OpSnapshot, req.InstanceID)
	e.SnapshotID = req.Labels[sdk.LabelSnapshot]
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		if made, err = p.client.Snapshot(ctx, req); err == nil {
			o.Made, o.Bytes = made.ID, &made.Bytes
		}
		return err
	})
	if err != nil {
		return sdk.Snapshot{}, err
	}
	return made, nil
}

// DeleteSnapshot records the end of a snapshot. Whose it is, and what the broker calls it,
// the context says: see
// effect.OfSnapshot.
func (p *provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	e := p.recorder.effect(ctx, OpDeleteSnapshot, "")
	ofSnapshot(ctx, &e)
	e.ProviderSnapshot = snapshotID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.DeleteSnapshot(ctx, snapshotID) })
}

// LoseSnapshot takes down that a provider does not have a snapshot any more.
func (p *provider) LoseSnapshot(ctx context.Context, snapshotID string) error {
	e := p.recorder.effect(ctx, OpLoseSnapshot, "")
	ofSnapshot(ctx, &e)
	e.ProviderSnapshot = snapshotID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return nil })
}
