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
	s.shutdown(ctx, func(*entry) bool { return false })
}

// ShutdownKeeping is Shutdown that leaves to the next process, which finds them in the
// journal, what that can adopt: instances in clouds whose provider it will have. What was
// made for one execution is destroyed, and what ends with the process of its plugin.
func (s *Service) ShutdownKeeping(ctx context.Context) {
	offered := map[string]bool{}
	for _, p := range s.catalog.Providers() {
		offered[p.Label()] = true
	}
	s.shutdown(ctx, func(e *entry) bool {
		return e.state == live && !e.oneShot && !e.doomed && offered[e.provider.Label()] && !e.provider.Description().Ephemeral
	})
}

func (s *Service) shutdown(ctx context.Context, keep func(*entry) bool) {
	s.Drain(ctx)
	s.endLifetime(errShuttingDown)
	limit := time.AfterFunc(cleanupTimeout, s.endCleanup)
	defer limit.Stop()
	s.destroyAll(keep)
	s.tasks.Wait()
	s.endCleanup()
}

// destroyAll destroys what is not to be kept. Kept instances stay in the registry: a
// plugin that starts once more before it is stopped must find them known.
func (s *Service) destroyAll(keep func(*entry) bool) {
	s.mu.Lock()
	var all []*entry
	kept, now := 0, time.Now()
	for _, e := range s.entries {
		expired := e.over(now)
		switch {
		case e.state == unsettled, e.doomed && e.retryAt.IsZero():
			continue // it has a task of its own
		case !expired && keep(e):
			kept++
			continue
		}
		s.hide(e)
		switch {
		case e.reason != "" || e.stopped != "" || e.doomed:
		case expired:
			e.reason = reasonExpired
		default:
			e.reason = reasonStop
		}
		all = append(all, e)
	}
	s.mu.Unlock()
	if kept > 0 {
		s.logger.Info("instances stay in their clouds for the next start", "count", kept)
	}

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
