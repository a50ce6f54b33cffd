package instance

import (
	"maps"
	"slices"
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
	Metadata map[string]string
	// Labels are the tenant's own.
	Labels map[string]string
	// Paused instances keep their memory and take no executions.
	Paused    bool
	CreatedAt time.Time
	LastUsed  time.Time
	// ExpiresAt is when it is destroyed unless it is used or renewed before.
	// It may come to that earlier: when it was not used for Idle. What runs
	// then may finish.
	ExpiresAt time.Time
	// TTL is what a use leaves at least, and Idle the limit of disuse.
	TTL, Idle time.Duration
	// Executions in progress.
	Executions int
	// Routing says why it is on its provider.
	Routing Routing
}

// Get returns an instance of the tenant, or SB013.
func (s *Service) Get(who tenant.Tenant, id string) (Info, error) {
	e, info, err := s.lookUp(who, id)
	if err != nil {
		return Info{}, err
	}
	s.awaitNote(e)
	return info, nil
}

func (s *Service) lookUp(who tenant.Tenant, id string) (*entry, Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e, err := s.find(who, id, now)
	if err != nil {
		return nil, Info{}, err
	}
	return e, e.info(now), nil
}

// find returns a live entry of the tenant whose time is not over. An instance of
// somebody else gives the same error, after the same work, as one that never
// was. The caller holds mu.
func (s *Service) find(who tenant.Tenant, id string, now time.Time) (*entry, error) {
	e := s.entries[id]
	if e == nil || e.id.Tenant != who.Name || e.state != live || s.retire(e, now) {
		return nil, s.absent(who, id)
	}
	return e, nil
}

// hold finds a live entry and keeps it from being reaped until release.
func (s *Service) hold(who tenant.Tenant, id string) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(who, id, time.Now())
	if err != nil {
		return nil, err
	}
	e.holds++
	s.noteUse(e)
	return e, nil
}

// info describes the entry. The caller holds mu.
func (e *entry) info(now time.Time) Info {
	info := Info{
		ID:         e.id,
		Provider:   e.provider.Label(),
		Template:   e.template,
		Metadata:   maps.Clone(e.instance.Metadata),
		Labels:     maps.Clone(e.labels),
		Paused:     e.paused,
		CreatedAt:  e.created,
		LastUsed:   e.lastUsed,
		ExpiresAt:  e.expires,
		TTL:        e.ttl,
		Idle:       e.idle,
		Executions: e.running,
		Routing:    e.routing,
	}
	if e.holds > 0 {
		info.ExpiresAt = e.expiry(now) // the executions' end will move it so far at least
	}
	return info
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
	offer := s.catalog.Offer(who)
	list := []ProviderInfo{}
	for _, p := range offer.usable() {
		list = append(list, describe(p, offer.Active))
	}
	return list
}

// DefaultProviders describes those that serve requests which name none, as far as they
// are there: the active one, then its fallback in the order of the configuration.
func (s *Service) DefaultProviders() []ProviderInfo {
	offer := s.catalog.Offer(tenant.Tenant{})
	list := []ProviderInfo{}
	for _, label := range slices.Concat([]string{offer.Active}, offer.Fallback) {
		if p := labelled(offer.Providers, label); p != nil {
			list = append(list, describe(p, offer.Active))
		}
	}
	return list
}

func describe(p Provider, active string) ProviderInfo {
	return ProviderInfo{
		Label:       p.Label(),
		Plugin:      p.Plugin(),
		Active:      p.Label() == active,
		Description: p.Description(),
		Status:      p.Status(),
	}
}
