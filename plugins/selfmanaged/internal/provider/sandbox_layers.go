package provider

import (
	"context"
	"io/fs"
	"slices"
	"sync"
)

// usedLayers are the layers of packages that a sandbox has files of. The zero value is none.
type usedLayers struct {
	mu       sync.Mutex
	ended    bool
	ids      []string
	releases []func()
}

// add has a layer stay as long as the sandbox.
func (u *usedLayers) add(id string, release func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended || slices.Contains(u.ids, id) {
		release() // the sandbox has it already, or nothing any more
		return
	}
	u.ids, u.releases = append(u.ids, id), append(u.releases, release)
}

// all are the IDs of the layers, also after the end: a snapshot may just be taken.
func (u *usedLayers) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.ids)
}

// end releases all layers. The sandbox has ended.
func (u *usedLayers) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, release := range u.releases {
		release()
	}
	u.ended, u.releases = true, nil
}

// hold keeps layers that a copy of a sandbox will need, all or none. The error is
// fs.ErrNotExist if one of them is not there any more.
func (l *packageLayers) hold(ctx context.Context, ids []string) (*usedLayers, error) {
	u := &usedLayers{}
	for _, id := range ids {
		if l == nil || l.store == nil {
			return nil, fs.ErrNotExist
		}
		release, err := l.store.Hold(ctx, id)
		if err != nil {
			u.end()
			return nil, err
		}
		u.add(id, release)
	}
	return u, nil
}
