package snapshot

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/reconcile"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// interval is how often every provider is asked what it has, and firstInterval as long
	// as one has not answered since the start, or something is unclear.
	interval      = time.Minute
	firstInterval = 2 * time.Second
	// listTimeout bounds that.
	listTimeout = 30 * time.Second
	// noticeDelay is how long a process that makes snapshots itself may go on with one after
	// the call has ended.
	noticeDelay = time.Second
)

// listDelay is how long a list may lack a snapshot that there is.
func listDelay(ephemeral bool) time.Duration {
	if ephemeral {
		return noticeDelay
	}
	return failpoint.Hasten(reconcile.ListDelay)
}

// reconcile compares with the providers until the service ends.
func (s *Service) reconcile() {
	for {
		next := time.NewTimer(failpoint.Hasten(interval))
		if !s.compareAll(s.lifetime) {
			next.Reset(min(firstInterval, failpoint.Hasten(interval)))
		}
		select {
		case <-next.C:
		case <-s.look:
			next.Stop()
		case <-s.lifetime.Done():
			next.Stop()
			return
		}
	}
}

// lookSoon asks for a comparison.
func (s *Service) lookSoon() {
	select {
	case s.look <- struct{}{}:
	default: // it was asked for
	}
}

// Reconcile compares with all providers now. It reports whether all could be asked and
// nothing is unclear any more.
func (s *Service) Reconcile(ctx context.Context) (settled bool) { return s.compareAll(ctx) }

func (s *Service) compareAll(ctx context.Context) (settled bool) {
	ctx = origin.With(ctx, origin.Origin{Cause: origin.Reconcile})
	byLabel := map[string][]instance.Provider{}
	for _, p := range s.providers() {
		if supports(p) || p.Description().Name == "" {
			byLabel[p.Label()] = append(byLabel[p.Label()], p)
		}
	}
	settled = true
	for label, providers := range byLabel {
		settled = s.compare(ctx, label, providers) && settled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.Made == "" && !e.making && len(byLabel[e.Provider]) > 0 {
			return false
		}
	}
	return settled
}

// listed is a snapshot that a provider has.
type listed struct {
	sdk.Snapshot
	at instance.Provider
}

// compare compares with all providers of a label: while one is about to be replaced there
// are two, and either may have what the other has made.
func (s *Service) compare(ctx context.Context, label string, providers []instance.Provider) (complete bool) {
	began, complete := time.Now(), true
	var all []listed
	var ready sdk.Provider
	for _, p := range providers {
		has, from, err := s.list(ctx, p)
		if err != nil {
			s.logger.Debug("a provider does not say which snapshots it has", "provider", label, "error", err)
			complete = false
			continue
		}
		ready = from
		for _, one := range has {
			if s.brokerID == "" || one.Labels[sdk.LabelBroker] == s.brokerID {
				all = append(all, listed{one, p})
			}
		}
	}
	there := map[string]bool{}
	for _, one := range all {
		there[one.Labels[sdk.LabelSnapshot]+"\x00"+one.ID] = true
		s.settle(ctx, label, one)
	}
	if complete && len(providers) > 0 {
		s.settleUnlisted(ctx, label, ready, began, there)
	}
	return complete
}

func (s *Service) list(ctx context.Context, p instance.Provider) ([]sdk.Snapshot, sdk.Provider, error) {
	if !p.Status().Ready {
		return nil, nil, sdk.Errorf(sdk.CodeUnavailable, "provider %q is not ready", p.Label())
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	ready, err := p.Provider(ctx)
	if err != nil {
		return nil, nil, err
	}
	snapshots, ok := ready.(sdk.Snapshotter)
	if !ok || !supports(p) {
		return nil, ready, nil
	}
	has, err := snapshots.ListSnapshots(ctx)
	return has, ready, err
}

// settle finds out about one that is listed: it is somebody's, or is adopted, or is deleted.
// A record is there before its provider is asked, so what has none was never asked for, or
// has ended since.
func (s *Service) settle(ctx context.Context, label string, one listed) {
	id := one.Labels[sdk.LabelSnapshot]
	s.mu.Lock()
	e := s.entries[id]
	switch {
	case e != nil && (e.Provider != label || e.making || e.ending || e.Made == one.ID):
		s.mu.Unlock() // two labels may share an account
		return
	case e != nil && e.Made == "" && e.Keyed && !e.Ending:
		e.making = true
		s.mu.Unlock()
		s.adopt(e, one)
		return
	}
	s.mu.Unlock()
	owner := one.Labels[sdk.LabelTenant]
	if e != nil {
		owner = e.Tenant
	}
	ctx, cancel := context.WithTimeout(effect.OfSnapshot(ctx, owner, shown(id)), deleteTimeout)
	defer cancel()
	if err := s.forget(ctx, one.at, one.ID); err != nil {
		s.logger.Warn("a snapshot that nobody knows could not be deleted; it is tried again", "provider", label, "error", err)
		return
	}
	s.logger.Info("deleted a snapshot that nobody knows", "provider", label, "snapshot", shown(id))
}

// adopt takes what an earlier attempt has made, of which only the answer was lost.
func (s *Service) adopt(e *entry, one listed) {
	if _, err := (making{s, e}).note(one.Snapshot); err != nil {
		s.logger.Warn("a snapshot whose maker was not told of it is deleted", "snapshot", e.ID, "error", err)
	}
}

// settleUnlisted ends what no list has any more that began then.
func (s *Service) settleUnlisted(ctx context.Context, label string, ready sdk.Provider, began time.Time, there map[string]bool) {
	var lost, nothing []*entry
	s.mu.Lock()
	for _, e := range s.entries {
		if e.Provider != label || e.making || e.ending || there[e.ID+"\x00"+e.Made] {
			continue
		}
		patience := listDelay(e.Ephemeral)
		if e.Ephemeral {
			patience = 0
		}
		switch {
		case e.Made == "" && !began.Before(e.proofAt):
			e.ending = true
			nothing = append(nothing, e)
		case e.Made != "" && !e.Ending && began.Sub(e.Created) >= patience:
			e.ending = true
			lost = append(lost, e)
		}
	}
	s.mu.Unlock()
	for _, e := range nothing {
		s.nothing(e)
	}
	for _, e := range lost {
		s.lost(ctx, ready, e)
	}
}

// nothing ends an attempt that has left nothing.
func (s *Service) nothing(e *entry) {
	ctx, cancel := s.noting()
	defer cancel()
	err := s.journal.Remove(ctx, e.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ending = false
	if err == nil {
		s.quit(e)
	}
}
