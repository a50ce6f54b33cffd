package instance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// parallelDestroys bounds how many instances are destroyed at once.
	parallelDestroys = 16
	// reconcileInterval is how often every provider is asked what it has.
	reconcileInterval = time.Minute
	// reconcileTimeout bounds that.
	reconcileTimeout = 30 * time.Second
)

// Reconcile brings the registry and a provider into agreement: what owner should
// have and the provider no longer has is forgotten, what an earlier process of the
// broker left is adopted if somebody may ask for it, what the registry does not know
// is destroyed. It is called before anybody else may use a plugin that was just
// started, and again and again. Instances of another provider of the same label are
// left alone, listed or not, and so are those that carry another broker's ID.
func (s *Service) Reconcile(ctx context.Context, owner Provider, provider sdk.Provider) error {
	reason := reasonLost
	if owner.Description().Ephemeral {
		reason = reasonProcess
	}
	return s.reconcile(ctx, owner, provider, reason)
}

// reconcile does that; reason is why the owner has something no more.
func (s *Service) reconcile(ctx context.Context, owner Provider, provider sdk.Provider, reason string) error {
	label := owner.Label()
	asked := time.Now()
	believed, served := s.liveOn(owner)
	listed, err := provider.List(ctx)
	if err != nil {
		return fmt.Errorf("list the instances of provider %q: %w", label, err)
	}
	failpoint.Hit(failpoint.ReconcileListed)
	adopted, orphans := s.compare(owner, believed, served, listed, reason)
	if len(adopted) > 0 {
		failpoint.Hit(failpoint.ReconcileAdopted)
	}
	s.noteAdopted(ctx, adopted)

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelDestroys)
	var failed atomic.Int64
	for id, tenant := range orphans {
		group.Go(func() error {
			// It is tried again the next time; this one shall not fail for it,
			// nor fill the log.
			err := provider.Destroy(ctx, id)
			if sdk.CodeOf(err) == sdk.CodeNotFound {
				err = nil // it was gone already, and the list is late
			}
			s.orphanEnded(owner, id, tenant, err)
			if err != nil && failed.Add(1) == 1 {
				s.logger.Warn("an orphaned instance could not be destroyed", "provider", label, "id", id, "error", err)
			}
			failpoint.Hit(failpoint.ReconcileOrphan)
			return nil
		})
	}
	err = group.Wait()
	if err == nil {
		s.hasListed(owner, asked)
	}
	if n := failed.Load(); n > 1 {
		s.logger.Warn("orphaned instances could not be destroyed", "provider", label, "count", n)
	}
	return err
}

// liveOn returns the entries that the provider should have now, and whether it serves.
// Those made while it is being asked are not among them, nor those of which nobody knows.
func (s *Service) liveOn(owner Provider) (list []*entry, serves bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.provider == owner && e.state != creating && e.state != unsettled {
			list = append(list, e)
		}
	}
	return list, s.serves(owner)
}

// compare forgets entries that are not listed, adopts what an earlier process left,
// and returns the provider's IDs of listed instances that nobody knows, with the tenants
// that they count for as long as they are there. served says that the provider did when it
// was asked; if it does not any more the list is of no use. reason is why something that is
// not listed is no more.
func (s *Service) compare(owner Provider, believed []*entry, served bool, listed []sdk.Instance, reason string) (adopted []*entry, orphans map[string]string) {
	orphans = map[string]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLost(owner) || served && !s.serves(owner) {
		return nil, nil
	}
	there := map[string]bool{}
	strangers := map[string][]sdk.Instance{} // by instance part, which is never reused
	known, left := s.byInstancePart(), s.byProvidersID(owner)
	taken := s.takenOn(owner)
	for _, e := range believed { // it may have ended since the list was made
		known[e.id.Instance], taken[e.instance.ID] = e, true
	}
	for _, i := range listed {
		again := there[i.ID]
		there[i.ID] = true
		if again || taken[i.ID] {
			continue // whatever it is called here, it is one session's already
		}
		name, ours := left[i.ID] // whatever has become of its labels
		if !ours {
			name = i.Labels[sdk.LabelInstance]
			ours = s.brokerID == "" || i.Labels[sdk.LabelBroker] == s.brokerID
		}
		if !ours {
			continue
		}
		if e := known[name]; e == nil || e.instance.ID != "" && e.instance.ID != i.ID {
			strangers[name] = append(strangers[name], i)
		}
	}
	adopted = s.settle(owner, strangers)
	for name, instances := range strangers {
		if r, found := s.leftTo(owner, name); found {
			s.logger.Debug("an instance is left to its own provider", "provider", owner.Label(), "owner", r.Provider)
			continue
		}
		for _, i := range instances {
			orphans[i.ID] = s.orphanOf(owner, known[name], name, i)
		}
	}
	if s.serves(owner) {
		s.forgetOrphans(owner, there)
	}
	lost := s.forgetUnlisted(owner, believed, there, reason)
	if lost > 0 || len(orphans) > 0 || len(adopted) > 0 {
		s.logger.Info("reconciled", "provider", owner.Label(), "lost", lost, "orphans", len(orphans), "adopted", len(adopted))
	}
	return adopted, orphans
}

// byInstancePart returns the entries of all providers: two of them may share an
// account, and then list what is the other's. The caller holds mu.
func (s *Service) byInstancePart() map[string]*entry {
	known := make(map[string]*entry, len(s.entries))
	for _, e := range s.entries {
		known[e.id.Instance] = e
	}
	return known
}

// takenOn returns the provider's IDs of the instances that entries have. The caller
// holds mu.
func (s *Service) takenOn(owner Provider) map[string]bool {
	taken := map[string]bool{}
	for _, e := range s.entries {
		if e.instance.ID != "" && e.provider.Label() == owner.Label() {
			taken[e.instance.ID] = true
		}
	}
	return taken
}

// leftTo finds the record of an earlier process that is another provider's to
// settle. The caller holds mu.
func (s *Service) leftTo(owner Provider, name string) (Record, bool) {
	for _, r := range s.recovered {
		if r.ID.Instance == name && r.Provider != owner.Label() {
			return r, true
		}
	}
	return Record{}, false
}

// forgetUnlisted loses the entries that the provider does not have, but for those so
// young that its list may only be late. The caller holds mu.
func (s *Service) forgetUnlisted(owner Provider, believed []*entry, there map[string]bool, reason string) (lost int) {
	patience := failpoint.Hasten(listDelay)
	if owner.Description().Ephemeral {
		patience = 0
	}
	now := time.Now()
	for _, e := range believed {
		if there[e.instance.ID] || now.Sub(e.created) < patience || s.entries[e.id.String()] != e {
			continue
		}
		s.lose(e, reason)
		lost++
	}
	return lost
}

// noteAdopted writes down what was only intended when the earlier process ended.
func (s *Service) noteAdopted(ctx context.Context, adopted []*entry) {
	for _, e := range adopted {
		s.mu.Lock()
		record := e.record()
		s.mu.Unlock()
		if err := s.journal.Amend(ctx, e.id, func(r *Record) { *r = record }); err != nil {
			s.logger.Warn("an instance was adopted, which could not be written down", "instance", e.id.String(), "error", err)
		}
	}
}

// reconcileAll reconciles with every provider that is ready, again and again, until
// the service's lifetime ends: a provider may have made, or lost, what it did not
// say.
func (s *Service) reconcileAll() {
	ticker := time.NewTicker(failpoint.Hasten(reconcileInterval))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.lifetime.Done():
			return
		}
		s.abandon()
		var round sync.WaitGroup
		for _, p := range s.everyProvider() {
			if !p.Status().Ready {
				continue
			}
			round.Add(1)
			s.tasks.Go("reconcile "+p.Label(), func() {
				defer round.Done()
				s.reconcileOne(p)
			})
		}
		round.Wait()
	}
}

// InForce is called when the catalog has other providers. Those that have just come into
// force are asked once more for what earlier processes of the broker left: that they lack
// it did not count before.
func (s *Service) InForce() {
	s.mu.Lock()
	awaited := map[string]bool{}
	for _, r := range s.recovered {
		awaited[r.Provider] = true
	}
	s.mu.Unlock()
	for _, p := range s.catalog.Providers() {
		if awaited[p.Label()] && p.Status().Ready {
			s.tasks.Go("reconcile "+p.Label(), func() { s.reconcileOne(p) })
		}
	}
}

func (s *Service) reconcileOne(p Provider) {
	ctx, cancel := s.bounded(context.Background(), reconcileTimeout)
	defer cancel()
	ready, err := p.Provider(ctx)
	if err == nil {
		err = s.reconcile(ctx, p, ready, reasonLost) // its process is the same as before
	}
	if err != nil && s.lifetime.Err() == nil {
		s.logger.Warn("a provider does not say what it has", "provider", p.Label(), "error", err)
	}
}

// everyProvider returns those in the catalog and those that still have instances.
func (s *Service) everyProvider() []Provider {
	all := slices.Clone(s.catalog.Providers())
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.retired {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}
