package instance

import (
	"context"
	"sync"
)

// keyLock is a lock for each key. Who waits for one can stop to wait.
type keyLock[K comparable] struct {
	mu   sync.Mutex
	held map[K]*keyTurn
}

type keyTurn struct {
	turn   chan struct{} // has room for the one who holds it
	wanted int           // counts who holds it or waits for it
}

// lock waits until nobody else holds the key.
func (l *keyLock[K]) lock(ctx context.Context, key K) (unlock func(), err error) {
	l.mu.Lock()
	t := l.held[key]
	if t == nil {
		if l.held == nil {
			l.held = map[K]*keyTurn{}
		}
		t = &keyTurn{turn: make(chan struct{}, 1)}
		l.held[key] = t
	}
	t.wanted++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.wanted--; t.wanted == 0 {
			delete(l.held, key)
		}
	}
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
