package instance

import "github.com/sandbox-broker/sandbox-broker/broker/quota"

// orphanKey is an instance that a provider has and nobody knows, by the provider's
// label and ID.
type orphanKey struct{ provider, id string }

// orphaned has an instance that is to be destroyed go on counting as the record did
// that it was left by. The caller holds mu.
func (s *Service) orphaned(owner Provider, providersID string, counted *quota.Instance) {
	key := orphanKey{owner.Label(), providersID}
	s.orphans[key].Release()
	s.orphans[key] = counted
}

// forgetOrphans ends the counting of those that are not listed any more. The caller
// holds mu.
func (s *Service) forgetOrphans(owner Provider, there map[string]bool) {
	for key, counted := range s.orphans {
		if key.provider == owner.Label() && !there[key.id] {
			counted.Release()
			delete(s.orphans, key)
		}
	}
}

// orphanEnded is told how the destruction of one went. One that is still there counts
// for its tenant: else that would get another in its place.
func (s *Service) orphanEnded(owner Provider, id, tenant string, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := orphanKey{owner.Label(), id}
	counted, found := s.orphans[key]
	switch {
	case failure == nil:
		counted.Release()
		delete(s.orphans, key)
	case !found && tenant != "":
		s.orphans[key] = s.quotas.Adopt(tenant, owner.Label())
	}
}
