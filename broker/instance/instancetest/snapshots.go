package instancetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Snapshotter = (*Served)(nil)

// Snapshots, if a Provider has them, make it one that can keep its instances as they are: it
// keeps no more than what they are called.
type Snapshots struct {
	// Bytes of each.
	Bytes int64
	// OnSnapshot, OnDelete and OnList stand before the provider's own work when they are
	// set, and After behind the making of one; an error of theirs is the answer.
	OnSnapshot func(ctx context.Context, req sdk.SnapshotRequest) error
	After      func(ctx context.Context, made sdk.Snapshot) error
	OnDelete   func(ctx context.Context, id string) error
	OnList     func(ctx context.Context) error

	kept  map[string]sdk.Snapshot
	asked []sdk.SnapshotRequest
}

// Kept are the snapshots that there are, in the order of their IDs.
func (p *Provider) Kept() []sdk.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Collect(maps.Values(p.Snapshots.kept))
	slices.SortFunc(list, func(a, b sdk.Snapshot) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Asked are the requests for snapshots that arrived, in order.
func (p *Provider) Asked() []sdk.SnapshotRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.Snapshots.asked)
}

// Keep adds a snapshot that nobody asked for.
func (p *Provider) Keep(one sdk.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Snapshots.keep(one)
}

// LoseSnapshots forgets all.
func (p *Provider) LoseSnapshots() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Snapshots.kept = nil
}

// ChangeSnapshots changes the hooks while the provider is used.
func (p *Provider) ChangeSnapshots(change func(*Snapshots)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.Snapshots)
}

// hooks are those of this moment.
func (p *Provider) hooks() Snapshots {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.Snapshots
}

func (s *Snapshots) keep(one sdk.Snapshot) {
	if s.kept == nil {
		s.kept = map[string]sdk.Snapshot{}
	}
	s.kept[one.ID] = one
}

// Snapshot implements sdk.Snapshotter.
func (s *Served) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	of := s.p.hooks()
	s.p.mu.Lock()
	s.p.Snapshots.asked = append(s.p.Snapshots.asked, req)
	made := sdk.Snapshot{
		ID: "kept-" + req.IdempotencyKey[strings.IndexByte(req.IdempotencyKey, ':')+1:], Labels: req.Labels, CreatedAt: time.Now(), Bytes: of.Bytes, Memory: true,
	}
	s.p.mu.Unlock()
	if of.OnSnapshot != nil {
		if err := of.OnSnapshot(ctx, req); err != nil {
			return sdk.Snapshot{}, err
		}
	}
	s.p.Keep(made)
	if of.After != nil {
		return made, of.After(ctx, made)
	}
	return made, nil
}

// DeleteSnapshot implements sdk.Snapshotter.
func (s *Served) DeleteSnapshot(ctx context.Context, id string) error {
	if hook := s.p.hooks().OnDelete; hook != nil {
		if err := hook(ctx, id); err != nil {
			return err
		}
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	delete(s.p.Snapshots.kept, id)
	return nil
}

// ListSnapshots implements sdk.Snapshotter.
func (s *Served) ListSnapshots(ctx context.Context) ([]sdk.Snapshot, error) {
	if hook := s.p.hooks().OnList; hook != nil {
		if err := hook(ctx); err != nil {
			return nil, err
		}
	}
	return s.p.Kept(), nil
}
