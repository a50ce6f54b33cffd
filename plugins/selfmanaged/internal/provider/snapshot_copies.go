package provider

import (
	"context"
	"errors"
	"maps"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/snapshotfile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// createCopy makes an instance that goes on from a snapshot.
func (p *Provider) createCopy(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if p.snapshots == nil {
		return sdk.Instance{}, noSnapshots()
	}
	err := p.pool.Place(ctx, pool.Request{Tenant: req.Labels[sdk.LabelTenant], Patience: p.settings.QueueTimeout, MaxQueue: req.MaxQueue})
	if err != nil {
		return sdk.Instance{}, err
	}
	s, env, err := p.snapshots.start(ctx, p.sandboxes, &req)
	if err != nil {
		p.pool.Release()
		return sdk.Instance{}, err
	}
	req.Env = env
	return p.begin(ctx, req, s, false)
}

// start starts a copy, and names its template in the request. env is what the copy has of
// the original's variables and of the request's.
func (s *snapshots) start(ctx context.Context, m *maker, req *sdk.CreateRequest) (made *sandbox, env map[string]string, err error) {
	from, template, release, err := s.open(ctx, *req.Snapshot)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	if req.Template != "" && req.Template != template {
		return nil, nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "the snapshot is of the template %s", template)
	}
	// What a template is made of now may be another one.
	req.Template, req.Image = template, from.image
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	env = map[string]string{}
	maps.Copy(env, from.env)
	maps.Copy(env, req.Env)
	made, err = m.copy(ctx, from, req.Env)
	return made, env, err
}

// open returns what a snapshot has, until release is called.
func (s *snapshots) open(ctx context.Context, source sdk.SnapshotSource) (_ kept, template string, release func(), err error) {
	s.mu.Lock()
	if t := s.transient[source.ID]; t != nil && !t.deleted {
		defer s.mu.Unlock()
		t.users++
		return t.kept, t.Template, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.users--
			s.warn(s.removeUnused(t))
		}, nil
	}
	s.mu.Unlock()
	if err := s.takeTurn(ctx); err != nil {
		return kept{}, "", nil, err
	}
	k, template, err := s.read(ctx, source)
	if err != nil {
		s.endTurn()
		return kept{}, "", nil, err
	}
	return k, template, func() {
		s.warn(k.Remove())
		s.endTurn()
	}, nil
}

// read decrypts a snapshot into memory.
func (s *snapshots) read(ctx context.Context, source sdk.SnapshotSource) (_ kept, template string, err error) {
	f, err := s.disk.Read(source.ID)
	if errors.Is(err, snapshotfile.ErrNotFound) {
		e := sdk.FieldErrorf(sdk.CodeNotFound, "snapshot", "no such snapshot")
		e.NoEffect = true
		return kept{}, "", e
	}
	if err != nil {
		return kept{}, "", err
	}
	defer f.Close()
	for what, as := range s.madeWith {
		if f.Header.MadeWith[what] != as {
			e := sdk.FieldErrorf(sdk.CodeConflict, "snapshot", "the snapshot was made with another %s than this machine has now, and cannot be used any more: delete it, and make another", what)
			e.NoEffect = true
			return kept{}, "", e
		}
	}
	written, err := s.reserve(f.Header.Bytes)
	if err != nil {
		return kept{}, "", err
	}
	defer written()
	content, err := f.Content(source.Key)
	if err != nil {
		return kept{}, "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "key", "must have %d bytes", sdk.SnapshotKeyBytes)
	}
	k, err := checkpointFrom(ctx, s.runtime, content)
	switch {
	case errors.Is(err, snapshotfile.ErrSealed):
		e := sdk.FieldErrorf(sdk.CodeInvalidRequest, "snapshot", "%w", err)
		e.NoEffect = true
		return kept{}, "", e
	case err != nil:
		return kept{}, "", err
	}
	k.layers, k.image = f.Header.Layers, f.Header.Image
	return k, f.Header.Template, nil
}
