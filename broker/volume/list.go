package volume

import (
	"cmp"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Get describes a volume of a tenant.
func (s *Service) Get(who tenant.Tenant, name string) (Info, error) {
	s.mu.Lock()
	v := s.find(who, name)
	var info Info
	if v != nil {
		info = s.infoOf(v)
	}
	s.mu.Unlock()
	if v == nil {
		return Info{}, s.elsewhere(who, name, noSuchVolume(""))
	}
	return info, nil
}

// List describes the volumes of a tenant, by name.
func (s *Service) List(who tenant.Tenant) []Info {
	return s.list(func(v *volume) bool { return v.named(who.Name, v.Name) })
}

// All describes the volumes of all tenants, those too that are no tenant's any more, and
// what providers list of this broker without a record: those have no name, and the ID
// {provider}:{ID there}.
func (s *Service) All() []Info {
	all := s.list(func(v *volume) bool { return v.State != Removed })
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, stranger := range s.strangers {
		all = append(all, Info{Used: stranger.Used, Record: Record{
			ID: key[0] + ":" + key[1], Tenant: stranger.Labels[sdk.LabelTenant], Provider: key[0], VolumeID: key[1], State: Ready,
			Size: stranger.Size, CreatedAt: stranger.CreatedAt, Ownerless: true,
		}})
	}
	slices.SortFunc(all, compareInfo)
	return all
}

// Held is how many volumes count for a tenant, and the bytes that they may take.
func (s *Service) Held(tenant string) (volumes, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held(tenant)
}

// held is Held for who holds the lock.
func (s *Service) held(tenant string) (volumes, bytes int64) {
	for _, v := range s.volumes {
		if v.Tenant == tenant && v.Counts() {
			volumes, bytes = volumes+1, bytes+v.Size
		}
	}
	return volumes, bytes
}

// Count is how many volumes there are or may be, and their bytes.
type Count struct{ Volumes, Bytes int64 }

// CountByProvider counts those of all tenants, by the labels of their providers.
func (s *Service) CountByProvider() map[string]Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]Count{}
	for _, v := range s.volumes {
		if v.State != Removed {
			n := counts[v.Provider]
			counts[v.Provider] = Count{n.Volumes + 1, n.Bytes + v.Size}
		}
	}
	return counts
}

func (s *Service) list(wanted func(v *volume) bool) []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Info{}
	for _, v := range s.volumes {
		if wanted(v) {
			list = append(list, s.infoOf(v))
		}
	}
	slices.SortFunc(list, compareInfo)
	return list
}

func compareInfo(a, b Info) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}
