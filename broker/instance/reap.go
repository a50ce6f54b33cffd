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
		case now := <-ticker.C:
			s.reapExpired(now)
		case <-s.lifetime.Done():
			return
		}
	}
}

func (s *Service) reapExpired(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		expired := e.state == live && e.holds == 0 && e.waiters == 0 && !now.Before(e.expires())
		retry := e.state == ending && !e.retryAt.IsZero() && !now.Before(e.retryAt)
		if !expired && !retry {
			continue
		}
		s.hide(e)
		e.retryAt = time.Time{} // set again if this attempt fails too
		s.destroyLater(e)
	}
}
