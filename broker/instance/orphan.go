package instance

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// orphanKey is an instance that a provider has and nobody knows, by the provider's
// label and ID.
type orphanKey struct{ provider, id string }

// orphan is what has to be done when one is gone.
type orphan struct {
	counted *quota.Instance
	// left is what the journal is told then, nil if it knows nothing of it. Until then
	// its record stays, so that it counts for the process after this one too.
	left *Ended
}

// orphaned has an instance that is to be destroyed go on counting as the record did
// that it was left by. The caller holds mu.
func (s *Service) orphaned(owner Provider, providersID string, counted *quota.Instance, r Record, ended Ended) {
	key := orphanKey{owner.Label(), providersID}
	s.orphans[key].counted.Release()
	s.orphans[key] = orphan{counted, &ended}
	if ended.Reason != "" {
		s.graves.add(ended)
	}
	if r.adoptable() {
		s.noteInBackground(func(ctx context.Context) error {
			return s.journal.Amend(ctx, r.ID, func(r *Record) { r.Ending = true })
		})
	}
}

// orphanGone ends the counting of one. The caller holds mu.
func (s *Service) orphanGone(key orphanKey) {
	o := s.orphans[key]
	delete(s.orphans, key)
	o.counted.Release()
	if o.left != nil {
		s.noteInBackground(func(ctx context.Context) error { return s.journal.End(ctx, *o.left) })
	}
}

// forgetOrphans ends the counting of those that are not listed any more. The caller
// holds mu.
func (s *Service) forgetOrphans(owner Provider, there map[string]bool) {
	for key := range s.orphans {
		if key.provider == owner.Label() && !there[key.id] {
			s.orphanGone(key)
		}
	}
}

// orphanOf returns the tenant that an instance counts for which nobody knows, "" for
// none: the one whose instance or record has its name, e if there is such an entry, and
// else the one that its labels name. These are the plugin's word alone, which shall fill
// the quotas of nobody that may not use the provider. The caller holds mu.
func (s *Service) orphanOf(owner Provider, e *entry, name string, i sdk.Instance) string {
	if e != nil && e.provider.Label() == owner.Label() {
		return e.id.Tenant
	}
	for _, r := range s.recovered {
		if r.ID.Instance == name && r.Provider == owner.Label() {
			return r.ID.Tenant
		}
	}
	// What the catalog does not know remains as it is asked for: allowed nothing.
	unknown := tenant.Tenant{Name: i.Labels[sdk.LabelTenant], Providers: []string{""}}
	if unknown.Name == "" || !s.catalog.Offer(unknown).Tenant.Allows(owner.Label()) {
		return ""
	}
	return unknown.Name
}

// orphanEnded is told how the destruction of one went. One that is still there counts
// for its tenant, if it has one: else that would get another in its place.
func (s *Service) orphanEnded(owner Provider, id, whose string, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := orphanKey{owner.Label(), id}
	_, found := s.orphans[key]
	switch {
	case failure == nil:
		s.orphanGone(key)
	case !found:
		var o orphan
		if whose != "" {
			o.counted = s.quotas.Adopt(whose, owner.Label())
		}
		s.orphans[key] = o
	}
}
