package instance

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// parallelDestroys bounds how many instances are destroyed at once.
const parallelDestroys = 16

// Reconcile brings the registry and a provider whose plugin was just started
// into agreement: what owner should have and the plugin no longer has is forgotten,
// what the registry does not know is destroyed. It is called before anybody else
// may use the plugin. Instances of another provider of the same label are left
// alone, listed or not.
func (s *Service) Reconcile(ctx context.Context, owner Provider, provider sdk.Provider) error {
	label := owner.Label()
	believed := s.liveOn(owner)
	listed, err := provider.List(ctx)
	if err != nil {
		return fmt.Errorf("list the instances of provider %q: %w", label, err)
	}
	orphans := s.compare(label, believed, listed)

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelDestroys)
	var failed atomic.Int64
	for _, id := range orphans {
		group.Go(func() error {
			// It is tried again at the next start; this one shall not fail for
			// it, nor fill the log.
			if err := provider.Destroy(ctx, id); err != nil && failed.Add(1) == 1 {
				s.logger.Warn("an orphaned instance could not be destroyed", "provider", label, "id", id, "error", err)
			}
			return nil
		})
	}
	err = group.Wait()
	if n := failed.Load(); n > 1 {
		s.logger.Warn("orphaned instances could not be destroyed", "provider", label, "count", n)
	}
	return err
}

// liveOn returns the entries that the provider should have now. Those made
// while it is being asked are not among them.
func (s *Service) liveOn(owner Provider) []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*entry
	for _, e := range s.entries {
		if e.provider == owner && e.state != creating {
			list = append(list, e)
		}
	}
	return list
}

// compare forgets entries that are not listed and returns the IDs of listed
// instances that nobody knows.
func (s *Service) compare(label string, believed []*entry, listed []sdk.Instance) (orphans []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]bool{} // instance parts, which are never reused
	for _, e := range s.entries {
		if e.provider.Label() == label {
			known[e.id.Instance] = true
		}
	}
	there := map[string]bool{}
	for _, i := range listed {
		there[i.ID] = true
		if !known[i.Labels[sdk.LabelInstance]] {
			orphans = append(orphans, i.ID)
		}
	}
	lost := 0
	for _, e := range believed {
		if !there[e.instance.ID] {
			s.hide(e)
			s.forget(e)
			lost++
		}
	}
	if lost > 0 || len(orphans) > 0 {
		s.logger.Info("reconciled", "provider", label, "lost", lost, "orphans", len(orphans))
	}
	return orphans
}

// Lose forgets what is left on a provider that is no more: nobody can reach it.
func (s *Service) Lose(owner Provider) {
	s.compare(owner.Label(), s.liveOn(owner), nil)
}
