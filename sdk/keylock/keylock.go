// Package keylock has a lock for each key, for what may be done by one at a time with each
// of many things: the contexts of a sandbox, the search of a session for a provider. Who
// waits can stop to wait, which a sync.Mutex does not allow.
package keylock

import (
	"context"
	"sync"
)

// Locks are one lock for each key that anybody holds or waits for; nothing is kept of the
// others. The zero value is ready. It must not be copied after its first use.
type Locks[K comparable] struct {
	mu   sync.Mutex
	used map[K]*lock
}

type lock struct {
	holder chan struct{} // has room for the one who holds it
	users  int           // counts who holds it or waits for it
}

// Take waits until nobody else holds the key. release gives it back and is called once.
// err is ctx.Err() if ctx ends before; then nothing is held and release is nil.
func (l *Locks[K]) Take(ctx context.Context, key K) (release func(), err error) {
	one := l.enter(key)
	select {
	case one.holder <- struct{}{}:
		return func() { <-one.holder; l.leave(key, one) }, nil
	case <-ctx.Done():
		l.leave(key, one)
		return nil, ctx.Err()
	}
}

func (l *Locks[K]) enter(key K) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.used[key]
	if one == nil {
		if l.used == nil {
			l.used = map[K]*lock{}
		}
		one = &lock{holder: make(chan struct{}, 1)}
		l.used[key] = one
	}
	one.users++
	return one
}

func (l *Locks[K]) leave(key K, one *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.used, key)
	}
}
