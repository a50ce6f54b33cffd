package remote

import (
	"context"
	"sync"
)

// Turns let one at a time do something with what has a name. The zero value is ready.
type Turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	users int
	token chan struct{}
}

// Take waits for a turn, which ends with release.
func (t *Turns) Take(ctx context.Context, name string) (release func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	one := t.all[name]
	if one == nil {
		one = &turn{token: make(chan struct{}, 1)}
		t.all[name] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.all, name)
		}
	}
	select {
	case one.token <- struct{}{}:
		return func() { <-one.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
