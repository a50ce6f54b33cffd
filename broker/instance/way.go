package instance

import "context"

// workKey names a piece of work: a session, on whichever provider.
type workKey struct{ tenant, session string }

func (w wish) work() workKey { return workKey{w.tenant.Name, w.session} }

// way is held by the one request that looks for a provider for a session.
type way struct {
	turn chan struct{} // has room for the one who holds it
	// wanted counts who holds it or waits for it; guarded by Service.mu.
	wanted int
}

// enterWay waits until nobody else looks for a provider for the session.
func (s *Service) enterWay(ctx context.Context, key workKey) (leave func(), err error) {
	s.mu.Lock()
	w := s.ways[key]
	if w == nil {
		w = &way{turn: make(chan struct{}, 1)}
		s.ways[key] = w
	}
	w.wanted++
	s.mu.Unlock()
	unwant := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.wanted--; w.wanted == 0 {
			delete(s.ways, key)
		}
	}
	select {
	case w.turn <- struct{}{}:
		return func() { <-w.turn; unwant() }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.lifetime.Done():
		err = shuttingDown()
	}
	unwant()
	return nil, err
}
