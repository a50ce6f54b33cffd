package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Snapshotter = (*provider)(nil)

// snapshotted is what the store keeps of an instance: what it remembered.
type snapshotted struct {
	Snapshot sdk.Snapshot
	Memory   string
	Env      map[string]string
	// KeySum is the SHA-256 of the key, to know another one by.
	KeySum string
	// Key is the idempotency key.
	Key string
}

func sumOf(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

// Snapshot keeps what an instance remembers. It takes as many bytes as that has, and at
// least one.
func (p *provider) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (made sdk.Snapshot, err error) {
	err = p.call(ctx, "snapshot", func() error {
		made, err = p.instances().snapshot(req)
		return err
	})
	return made, err
}

// DeleteSnapshot implements sdk.Snapshotter.
func (p *provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return p.call(ctx, "delete_snapshot", func() error { return p.instances().deleteSnapshot(snapshotID) })
}

// ListSnapshots implements sdk.Snapshotter.
func (p *provider) ListSnapshots(ctx context.Context) (list []sdk.Snapshot, err error) {
	err = p.call(ctx, "list_snapshots", func() error {
		list = p.instances().listSnapshots()
		return nil
	})
	return list, err
}

func (s *store) snapshot(req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kept := range s.snapshots {
		if req.IdempotencyKey != "" && kept.Key == req.IdempotencyKey {
			return kept.Snapshot, nil
		}
	}
	of, ok := s.all[req.InstanceID]
	if !ok {
		return sdk.Snapshot{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	size := max(int64(len(of.Memory)), 1)
	if req.MaxBytes > 0 && size > req.MaxBytes {
		return sdk.Snapshot{}, sdk.Errorf(sdk.CodeQuotaExceeded, "the snapshot takes %d bytes, and may take %d", size, req.MaxBytes)
	}
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	made := sdk.Snapshot{
		ID: "mocksnap-" + hex.EncodeToString(random), Labels: req.Labels, Template: of.Instance.Template,
		CreatedAt: time.Now(), Bytes: size, Memory: true,
	}
	s.snapshots[made.ID] = snapshotted{Snapshot: made, Memory: of.Memory, Env: of.Env, KeySum: sumOf(req.Key), Key: req.IdempotencyKey}
	return made, s.save()
}

// opened returns what a snapshot has.
func (s *store) opened(source *sdk.SnapshotSource) (snapshotted, error) {
	kept, ok := s.snapshots[source.ID]
	switch {
	case !ok:
		return kept, &sdk.Error{Code: sdk.CodeNotFound, Field: "snapshot", Message: "no such snapshot", NoEffect: true}
	case kept.KeySum != sumOf(source.Key):
		return kept, sdk.FieldErrorf(sdk.CodeInvalidRequest, "snapshot", "the key does not open it")
	}
	return kept, nil
}

func (s *store) deleteSnapshot(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.snapshots, id)
	return s.save()
}

func (s *store) listSnapshots() []sdk.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]sdk.Snapshot, 0, len(s.snapshots))
	for _, kept := range s.snapshots {
		list = append(list, kept.Snapshot)
	}
	slices.SortFunc(list, func(a, b sdk.Snapshot) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// remember changes what an instance remembers.
func (s *store) remember(id, memory string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.all[id]
	if !ok {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	of.Memory = memory
	s.all[id] = of
	return s.save()
}
