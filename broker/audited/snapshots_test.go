package audited_test

import (
	"context"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestLinesOfASnapshotSayWhoseItIsAndHoldNoKey(t *testing.T) {
	s := newScene(t, audit.Options{})
	_, err := s.provider.Create(t.Context(), sdk.CreateRequest{Labels: labels})
	assert.NilError(t, err)
	snapshots := s.provider.(sdk.Snapshotter)
	key := []byte(strings.Repeat("k", sdk.SnapshotKeyBytes))
	_, err = snapshots.Snapshot(t.Context(), sdk.SnapshotRequest{InstanceID: "i-1", Labels: map[string]string{sdk.LabelSnapshot: "snap-1"}, Key: key})
	assert.NilError(t, err)
	line := s.last(t)
	assert.Equal(t, line["operation"], audited.OpSnapshot)
	assert.Equal(t, line["tenant_id"], "acme")
	assert.Equal(t, line["snapshot_id"], "snap-1")
	assert.Equal(t, line["made"], "s-1")
	assert.Equal(t, line["bytes"], 7.0)

	ctx := effect.OfSnapshot(t.Context(), "acme", "snap-1")
	_, err = s.provider.Create(ctx, sdk.CreateRequest{Labels: labels, Snapshot: &sdk.SnapshotSource{ID: "s-1", Key: key}})
	assert.NilError(t, err)
	line = s.last(t)
	assert.Equal(t, line["operation"], audited.OpCreate)
	assert.Equal(t, line["snapshot_id"], "snap-1")
	assert.Equal(t, line["provider_snapshot"], "s-1")
	loser := s.provider.(interface {
		LoseSnapshot(ctx context.Context, snapshotID string) error
	})
	for operation, does := range map[string]func(context.Context, string) error{
		audited.OpDeleteSnapshot: snapshots.DeleteSnapshot, audited.OpLoseSnapshot: loser.LoseSnapshot,
	} {
		assert.NilError(t, does(ctx, "s-1"))
		line = s.last(t)
		assert.Equal(t, line["operation"], operation)
		assert.Equal(t, line["tenant_id"], "acme")
		assert.Equal(t, line["provider_snapshot"], "s-1")
	}
	for _, l := range s.lines(t) {
		for _, value := range l {
			text, _ := value.(string)
			assert.Assert(t, !strings.Contains(text, "kkk"))
		}
	}
}
