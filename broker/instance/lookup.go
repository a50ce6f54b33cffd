package instance

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Info describes an instance to its tenant.
type Info struct {
	ID       ID
	Provider string
	Template string
	// Metadata are facts from the provider.
	Metadata  map[string]string
	CreatedAt time.Time
	LastUsed  time.Time
	// ExpiresAt is when it is destroyed unless it is used before.
	ExpiresAt time.Time
	// Executions in progress.
	Executions int
}

// Get returns an instance of the tenant, or SB013.
func (s *Service) Get(who tenant.Tenant, id string) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(who, id)
	if err != nil {
		return Info{}, err
	}
	return e.info(), nil
}

// List returns the tenant's live instances, oldest first.
func (s *Service) List(who tenant.Tenant) []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Info{}
	for _, e := range s.entries {
		if e.id.Tenant == who.Name && e.state == live {
			list = append(list, e.info())
		}
	}
	slices.SortFunc(list, func(a, b Info) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID.String(), b.ID.String())
	})
	return list
}

// find returns a live entry of the tenant. An instance of somebody else gives
// the same error, after the same work, as one that never was. The caller holds
// mu.
func (s *Service) find(who tenant.Tenant, id string) (*entry, error) {
	e := s.entries[id]
	if e == nil || e.id.Tenant != who.Name || e.state != live {
		return nil, noSuchInstance()
	}
	return e, nil
}

// hold finds a live entry and keeps it from being reaped until release.
func (s *Service) hold(who tenant.Tenant, id string) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(who, id)
	if err != nil {
		return nil, err
	}
	e.holds++
	return e, nil
}

// info describes the entry. The caller holds mu.
func (e *entry) info() Info {
	return Info{
		ID:         e.id,
		Provider:   e.provider.Label(),
		Template:   e.template,
		Metadata:   maps.Clone(e.instance.Metadata),
		CreatedAt:  e.created,
		LastUsed:   e.lastUsed,
		ExpiresAt:  e.expires(),
		Executions: e.holds,
	}
}

// expires returns when the entry's time is over: so long after its last use,
// or when the provider said it would end it.
func (e *entry) expires() time.Time {
	at := e.lastUsed.Add(e.ttl)
	if own := e.instance.ExpiresAt; !own.IsZero() && own.Before(at) {
		return own
	}
	return at
}

// ProviderInfo describes a provider to a tenant.
type ProviderInfo struct {
	Label, Plugin string
	Active        bool
	Description   sdk.Description
	Status        Status
}

// Providers lists those that the tenant may use.
func (s *Service) Providers(who tenant.Tenant) []ProviderInfo {
	list := []ProviderInfo{}
	for _, p := range s.catalog.Providers() {
		if who.Allows(p.Label()) {
			list = append(list, s.describe(p))
		}
	}
	return list
}

// ActiveProvider describes the provider that is used by default; false when it
// is not there.
func (s *Service) ActiveProvider() (ProviderInfo, bool) {
	for _, p := range s.catalog.Providers() {
		if p.Label() == s.catalog.Active() {
			return s.describe(p), true
		}
	}
	return ProviderInfo{}, false
}

func (s *Service) describe(p Provider) ProviderInfo {
	return ProviderInfo{
		Label:       p.Label(),
		Plugin:      p.Plugin(),
		Active:      p.Label() == s.catalog.Active(),
		Description: p.Description(),
		Status:      p.Status(),
	}
}
