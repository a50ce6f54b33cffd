package wire_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

var _ sdk.Snapshotter = (*capable)(nil)

func (*capable) Snapshot(_ context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	if !req.Transient {
		return sdk.Snapshot{}, sdk.Errorf(sdk.CodeQuotaExceeded, "more than %d", req.MaxBytes)
	}
	return sdk.Snapshot{
		ID: "s-" + req.InstanceID, Labels: req.Labels, Template: req.IdempotencyKey + string(req.Key), CreatedAt: epoch, Bytes: 5, Memory: true,
	}, nil
}

func (*capable) DeleteSnapshot(_ context.Context, id string) error {
	return sdk.Errorf(sdk.CodeConflict, "%s", id)
}

func (*capable) ListSnapshots(context.Context) ([]sdk.Snapshot, error) {
	return []sdk.Snapshot{{ID: "s-1"}, {ID: "s-2"}}, nil
}

func TestSnapshotsCrossTheWire(t *testing.T) {
	var created sdk.CreateRequest
	provider := newCapable()
	provider.create = func(req sdk.CreateRequest) (sdk.Instance, error) {
		created = req
		return sdk.Instance{ID: "i"}, nil
	}
	c := connect(t, provider)
	ctx := t.Context()
	key := bytes.Repeat([]byte("k"), sdk.SnapshotKeyBytes)
	req := sdk.SnapshotRequest{InstanceID: "i", Labels: map[string]string{"a": "b"}, IdempotencyKey: "once", Key: key, Transient: true}
	made, err := c.Snapshot(ctx, req)
	assert.NilError(t, err)
	assert.DeepEqual(t, made, sdk.Snapshot{ID: "s-i", Labels: req.Labels, Template: "once" + string(key), CreatedAt: epoch, Bytes: 5, Memory: true})
	req.Transient, req.MaxBytes = false, 7
	_, err = c.Snapshot(ctx, req)
	assert.Error(t, err, "SB008: more than 7")
	assert.Error(t, c.DeleteSnapshot(ctx, "s-9"), "SB014: s-9")
	list, err := c.ListSnapshots(ctx)
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []sdk.Snapshot{{ID: "s-1"}, {ID: "s-2"}})

	_, err = c.Create(ctx, sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: "s-1", Key: key}})
	assert.NilError(t, err)
	assert.DeepEqual(t, created.Snapshot, &sdk.SnapshotSource{ID: "s-1", Key: key})
	_, err = c.Create(ctx, sdk.CreateRequest{})
	assert.NilError(t, err)
	assert.Assert(t, created.Snapshot == nil)

	req.Key = key[1:]
	_, err = c.Snapshot(ctx, req)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
	_, err = c.Create(ctx, sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: "s-1"}})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
}

// hostileSnapshots answers what no snapshot may be.
type hostileSnapshots struct {
	providerv1.UnimplementedSnapshotServiceServer
	list []*providerv1.Snapshot
}

func (s *hostileSnapshots) Snapshot(context.Context, *providerv1.SnapshotRequest) (*providerv1.SnapshotResponse, error) {
	return &providerv1.SnapshotResponse{Snapshot: s.list[0]}, nil
}

func (s *hostileSnapshots) ListSnapshots(context.Context, *providerv1.ListSnapshotsRequest) (*providerv1.ListSnapshotsResponse, error) {
	return &providerv1.ListSnapshotsResponse{Snapshots: s.list}, nil
}

func TestSnapshotsOfAHostilePlugin(t *testing.T) {
	many := map[string]string{}
	for range 101 {
		many[strings.Repeat("x", len(many)+1)] = ""
	}
	for name, tc := range map[string]struct {
		says *providerv1.Snapshot
		want string
	}{
		"nothing":              {nil, "gave a snapshot the ID"},
		"a path for an ID":     {&providerv1.Snapshot{Id: "../x"}, "gave a snapshot the ID"},
		"a size below 0":       {&providerv1.Snapshot{Id: "s", Bytes: -1}, "a size below 0"},
		"an endless template":  {&providerv1.Snapshot{Id: "s", Template: strings.Repeat("x", 5000)}, "a template that is too long"},
		"a hundred and more":   {&providerv1.Snapshot{Id: "s", Labels: many}, "more than 100 labels"},
		"an enormous label":    {&providerv1.Snapshot{Id: "s", Labels: map[string]string{"a": strings.Repeat("x", 5000)}}, "a label"},
		"the same one, listed": {&providerv1.Snapshot{Id: "s"}, `listed the snapshot "s" twice`},
	} {
		t.Run(name, func(t *testing.T) {
			c := wire.InstanceClient(dial(t, func(s *grpc.Server) {
				providerv1.RegisterSnapshotServiceServer(s, &hostileSnapshots{list: []*providerv1.Snapshot{tc.says, {Id: "s"}}})
			}))
			_, err := c.ListSnapshots(t.Context())
			assert.ErrorContains(t, err, tc.want)
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInternal})
			if _, err = c.Snapshot(t.Context(), sdk.SnapshotRequest{}); !strings.HasPrefix(name, "the same") {
				assert.ErrorContains(t, err, tc.want)
			}
		})
	}
}
