package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// reconcileInterval is the time between two looks at what providers have.
	reconcileInterval = 30 * time.Second
	// grace is how long the creator of a volume that there is not may ask again after this
	// broker was killed in between; then its record ends.
	grace = 10 * time.Minute
	// tombstoneLife is how long a creation that was given up may come late.
	tombstoneLife = 24 * time.Hour
)

// Run brings records and providers into agreement until ctx ends.
func (s *Service) Run(ctx context.Context) {
	ticker := time.NewTicker(failpoint.Hasten(reconcileInterval))
	defer ticker.Stop()
	for {
		s.Reconcile(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Reconcile does it once, with the providers that are ready.
func (s *Service) Reconcile(ctx context.Context) {
	ctx = origin.With(ctx, origin.Origin{Cause: origin.Reconcile})
	s.writeUnwritten(ctx)
	for _, p := range s.o.Catalog.Providers() {
		if !keepsVolumes(p) || !p.Status().Ready || ctx.Err() != nil {
			continue
		}
		if err := s.reconcile(ctx, p.Label()); err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("the volumes of a provider could not be looked at", "provider", p.Label(), "error", err)
		}
	}
}

func (s *Service) reconcile(ctx context.Context, label string) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, keeper, err := s.keeper(call, label)
	if err != nil {
		return err
	}
	listed, err := keeper.ListVolumes(call)
	if err != nil {
		return err
	}
	finish, made := s.compare(label, listed)
	var errs []error
	for v, one := range made {
		errs = append(errs, s.write(call, v, s.isMade(one)))
		s.release(v)
	}
	for _, v := range finish {
		if err := s.finish(call, v); err != nil {
			s.o.Logger.Warn("a volume could not be removed; it is tried again", "provider", label, "volume", v.ID, "error", err)
		}
		s.release(v)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write down that there is a volume: %w", err)
	}
	return s.forgetOld(call, label)
}

// release ends what this process does with a volume.
func (s *Service) release(v *volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.busy = false
}

// compare takes down what a provider lists, and returns the volumes that are to be removed
// there, and those that earlier processes have made without writing it down, all busy.
func (s *Service) compare(label string, listed []sdk.Volume) (finish []*volume, made map[*volume]sdk.Volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.strangers {
		if key[0] == label {
			delete(s.strangers, key)
		}
	}
	seen := map[string]bool{}
	made = map[*volume]sdk.Volume{}
	for _, one := range listed {
		if one.Labels[sdk.LabelBroker] != s.o.BrokerID {
			continue
		}
		v := s.volumes[one.Labels[sdk.LabelVolume]]
		if v == nil || v.Provider != label {
			s.strangers[[2]string{label, one.ID}] = one
			continue
		}
		v.used = one.Used
		seen[v.ID] = true
		// The state may be older than the volume, which somebody has filled then. So it is
		// not removed, be it that nobody was told of it.
		if v.past && v.State == Making && !v.busy {
			v.busy = true
			made[v] = one
		}
	}
	for _, v := range s.volumes {
		if v.Provider != label || v.busy {
			continue
		}
		due := v.State == Removing || v.State == Removed && seen[v.ID]
		if v.State == Ready && !seen[v.ID] {
			s.o.Logger.Error("a provider does not list a volume that it had; nothing is done about it", "provider", label, "tenant", v.Tenant, "name", v.Name)
		}
		if due {
			v.busy = true
			finish = append(finish, v)
		}
	}
	slices.SortFunc(finish, func(a, b *volume) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return finish, made
}

// finish removes a volume that nobody was told of, or that somebody has removed.
func (s *Service) finish(ctx context.Context, v *volume) error {
	s.mu.Lock()
	r := v.Record
	s.mu.Unlock()
	if r.State != Removing {
		if err := s.write(ctx, v, s.enters(Removing)); err != nil {
			return err
		}
	}
	return s.removeAtProvider(ctx, v)
}

// forgetOld ends the records of volumes that were removed long ago, and of those that an
// earlier process was to make and did not. If one of these comes late, it is a stranger.
func (s *Service) forgetOld(ctx context.Context, label string) error {
	s.mu.Lock()
	old := map[string]*volume{}
	for id, v := range s.volumes {
		since := s.o.Now().Sub(v.Since)
		ended := v.State == Removed && since > tombstoneLife || v.State == Making && v.past && since > failpoint.Hasten(grace)
		if v.Provider == label && ended && !v.busy {
			v.busy = true
			old[id] = v
		}
	}
	s.mu.Unlock()
	var errs []error
	for id, v := range old {
		errs = append(errs, s.forget(ctx, id, v))
	}
	return errors.Join(errs...)
}

// forget ends a record. v is busy.
func (s *Service) forget(ctx context.Context, id string, v *volume) error {
	defer s.release(v)
	done, err := s.writing.Take(ctx, v)
	if err != nil {
		return err
	}
	defer done()
	if err := s.o.Journal.Forget(ctx, id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.volumes, id)
	return nil
}
