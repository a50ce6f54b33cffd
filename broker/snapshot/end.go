package snapshot

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// deleteTimeout bounds one attempt to delete a snapshot.
	deleteTimeout = 30 * time.Second
	// deleteRetry is how long after a failed attempt the next one begins.
	deleteRetry = 15 * time.Second
	// reapInterval is how late a snapshot may be deleted after its time.
	reapInterval = time.Second
	// parallelDeletions bounds how many are deleted at once in the background.
	parallelDeletions = 8
)

// Delete deletes a snapshot of the tenant. Instances that were made from it go on. It returns
// when the provider has confirmed; when that fails nobody finds the snapshot any more, and the
// service tries again by itself. Errors carry SB009 or SB013.
func (s *Service) Delete(ctx context.Context, who tenant.Tenant, id string) error {
	return s.delete(ctx, who.Name, id)
}

// DeleteAny is Delete for the snapshot of whomever.
func (s *Service) DeleteAny(ctx context.Context, id string) error {
	return s.delete(ctx, "", id)
}

// delete deletes a snapshot of that owner, of whomever if it is empty.
func (s *Service) delete(ctx context.Context, owner, id string) error {
	of := func(e *entry) bool { return owner == "" || e.Tenant == owner }
	s.mu.Lock()
	e := s.entries[id]
	if e != nil && of(e) && e.ending && !e.Transient {
		s.mu.Unlock()
		// It may not be written down yet, and be there again after the death of the broker:
		// that it is no more is not to be told before.
		busy := sdk.Errorf(sdk.CodeUnavailable, "the snapshot is being deleted; ask again")
		busy.RetryAfter = time.Second
		return busy
	}
	if e == nil || !of(e) || !e.visible() {
		s.mu.Unlock()
		return s.elsewhere(owner, id, sdk.Errorf(sdk.CodeNotFound, "no such snapshot: it never existed, was deleted or has expired"))
	}
	e.Ending, e.ending = true, true
	s.mu.Unlock()
	// What was begun is finished even if the caller goes away.
	return s.finish(context.WithoutCancel(ctx), e)
}

// finish deletes what the caller has marked, and forgets it.
func (s *Service) finish(ctx context.Context, e *entry) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	s.mu.Lock()
	r := e.record()
	s.mu.Unlock()
	err := s.deleteAt(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ending = false
	if err != nil {
		e.retryAt = time.Now().Add(deleteRetry)
		s.logger.Warn("deleting a snapshot did not work; it is tried again", "snapshot", e.ID, "provider", e.Provider, "error", err)
		if code := sdk.CodeOf(err); code.FromProvider() != code {
			err = sdk.Errorf(sdk.CodeUnavailable, "provider %q has trouble with its own back end; the snapshot is out of use, and is deleted later", e.Provider)
		}
		return err
	}
	s.quit(e)
	return nil
}

// deleteAt writes down that a snapshot is to be deleted, has its provider do so, and drops
// the record.
func (s *Service) deleteAt(ctx context.Context, r Record) error {
	r.Ending = true
	if err := s.journal.Write(ctx, r); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SnapshotEnding)
	p := s.labelled(r.Provider)
	if p == nil {
		return sdk.Errorf(sdk.CodeUnavailable, "there is no provider %q any more, which has the snapshot", r.Provider)
	}
	if err := s.forget(effect.OfSnapshot(ctx, r.Tenant, r.ID), p, r.Made); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SnapshotDeleted)
	noting, cancel := s.noting()
	defer cancel()
	return s.journal.Remove(noting, r.ID)
}

// forget has a provider delete what it calls id.
func (s *Service) forget(ctx context.Context, p instance.Provider, id string) error {
	ready, err := p.Provider(ctx)
	if err != nil {
		return err
	}
	snapshots, ok := ready.(sdk.Snapshotter)
	if !ok {
		return sdk.NotSupported(p.Label(), sdk.CapabilitySnapshots)
	}
	err = snapshots.DeleteSnapshot(ctx, id)
	if explainer, ok := ready.(interface {
		Explain(ctx context.Context, err error) error
	}); ok && err != nil {
		err = explainer.Explain(ctx, err)
	}
	if sdk.CodeOf(err) == sdk.CodeNotFound {
		return nil
	}
	return err
}

// labelled is the provider of a label that gets new instances, else one that is about to be
// replaced; nil if there is none.
func (s *Service) labelled(label string) instance.Provider {
	all := s.providers()
	i := slices.IndexFunc(all, func(p instance.Provider) bool { return p.Label() == label })
	if i < 0 {
		return nil
	}
	return all[i]
}

// ReleaseTenants has all snapshots deleted of tenants that are none any more. Nobody sees
// them from then on, also in the next process, which may know another tenant of that name.
func (s *Service) ReleaseTenants(known func(tenant string) bool) {
	var ending []*entry
	var records []Record
	count := 0
	s.mu.Lock()
	for _, e := range s.entries {
		if known(e.Tenant) || e.Ending || e.making {
			continue
		}
		e.Ending = true
		count++
		if !e.ending { // else whoever ends it writes
			e.ending = true
			ending, records = append(ending, e), append(records, e.Record)
		}
	}
	s.mu.Unlock()
	if count == 0 {
		return
	}
	s.logger.Info("snapshots end with their tenants, which were removed", "count", count)
	ctx, cancel := s.noting()
	defer cancel()
	if err := s.journal.Write(ctx, records...); err != nil { // it is written again with each deletion
		s.logger.Error("that snapshots end with their tenants could not be written down", "count", len(records), "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range ending {
		e.ending = false
	}
}

// reap deletes what has expired, and again what could not be deleted.
func (s *Service) reap() {
	ticker := time.NewTicker(reapInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.reapNow(time.Now())
		case <-s.lifetime.Done():
			return
		}
	}
}

func (s *Service) reapNow(now time.Time) {
	configured := map[string]bool{}
	for _, p := range s.providers() {
		configured[p.Label()] = configured[p.Label()] || supports(p) || p.Description().Name == "" // that has never been started
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		expired := !now.Before(e.Expires)
		gone := expired && !configured[e.Provider] // nobody will ever answer for it
		if e.making || e.ending || now.Before(e.retryAt) || !gone && (e.Made == "" || !expired && !e.Ending) {
			continue
		}
		from := origin.Origin{Cause: origin.Broker}
		if expired && !e.Ending {
			from.Cause = origin.Expired
		}
		select {
		case s.deleting <- struct{}{}:
		default:
			return // enough is going on
		}
		e.Ending, e.ending = true, true
		s.tasks.Go("delete a snapshot", func() {
			defer func() { <-s.deleting }()
			if gone {
				s.dropped(e)
				return
			}
			_ = s.finish(origin.With(s.lifetime, from), e) // it has logged it, and it is tried again
		})
	}
}

// dropped forgets a snapshot whose provider is not configured any more.
func (s *Service) dropped(e *entry) {
	ctx, cancel := s.noting()
	defer cancel()
	err := s.journal.Remove(ctx, e.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ending = false
	if err != nil {
		e.retryAt = time.Now().Add(deleteRetry)
		return
	}
	s.logger.Warn("a snapshot has expired whose provider is not configured any more: whether it is still there nobody knows", "snapshot", e.ID, "provider", e.Provider)
	s.quit(e)
}

// lost ends a snapshot that its provider does not have any more.
func (s *Service) lost(ctx context.Context, ready sdk.Provider, e *entry) {
	s.mu.Lock()
	r := e.record()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(effect.OfSnapshot(ctx, r.Tenant, r.ID), deleteTimeout)
	defer cancel()
	var err error
	if recorder, ok := ready.(interface {
		LoseSnapshot(ctx context.Context, snapshotID string) error
	}); ok {
		err = recorder.LoseSnapshot(ctx, r.Made)
	}
	noting, stop := s.noting()
	defer stop()
	err = errors.Join(err, s.journal.Remove(noting, r.ID))
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ending = false
	if err != nil {
		s.logger.Warn("the end of a snapshot could not be written down", "snapshot", r.ID, "error", err)
		return // the next comparison finds it again
	}
	s.logger.Warn("a provider does not have a snapshot any more", "snapshot", r.ID, "provider", r.Provider)
	s.quit(e)
}
