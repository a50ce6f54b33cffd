package instance

import "time"

// reapInterval is how late an instance may be destroyed after its time.
const reapInterval = time.Second

// reap destroys what has expired, until the service's lifetime ends.
func (s *Service) reap() {
	ticker := time.NewTicker(reapInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.reapExpired()
			s.payForLives()
		case <-s.lifetime.Done():
			return
		}
	}
}

// reapExpired retires the entries whose time is over and tries again to destroy
// those where that did not work.
func (s *Service) reapExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, e := range s.entries {
		s.retire(e, now)
		if e.state == ending && !e.retryAt.IsZero() && !now.Before(e.retryAt) {
			e.retryAt = time.Time{} // set again if this attempt fails too
			s.destroyLater(e)
		}
	}
}
