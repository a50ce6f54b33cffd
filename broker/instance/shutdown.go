package instance

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// cleanupTimeout bounds the destruction of everything at shutdown.
const cleanupTimeout = 10 * time.Second

// Drain refuses new work from now on, ends what only watches, and waits until the running executions and
// creations have ended. When ctx ends first they are cancelled; it still waits
// for them to notice.
func (s *Service) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.endWatching()

	stop := context.AfterFunc(ctx, func() { s.endLifetime(errShuttingDown) })
	defer stop()
	s.calls.Wait()
}

// Draining reports whether new work is refused.
func (s *Service) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Shutdown drains until ctx ends, destroys all instances, which takes 10
// seconds at most, and returns when no goroutine of the service is left.
func (s *Service) Shutdown(ctx context.Context) {
	s.Drain(ctx)
	s.endLifetime(errShuttingDown)
	limit := time.AfterFunc(cleanupTimeout, s.endCleanup)
	defer limit.Stop()
	s.destroyAll()
	s.tasks.Wait()
	s.endCleanup()
}

func (s *Service) destroyAll() {
	s.mu.Lock()
	var all []*entry
	for _, e := range s.entries {
		// Who is doomed or unsettled has a task of its own.
		if e.state != unsettled && (!e.doomed || !e.retryAt.IsZero()) {
			s.hide(e)
			if e.reason == "" && e.stopped == "" && !e.doomed {
				e.reason = reasonStop
			}
			all = append(all, e)
		}
	}
	s.mu.Unlock()

	group := errgroup.Group{}
	group.SetLimit(parallelDestroys)
	for _, e := range all {
		group.Go(func() error {
			_ = s.end(s.cleanup, e) // end has logged it; nobody is left to retry
			return nil
		})
	}
	_ = group.Wait()
}
