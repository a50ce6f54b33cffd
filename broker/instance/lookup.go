package instance

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
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
	// Fixed means that no use moves ExpiresAt, and that what runs then is ended. Idle is
	// so long then that it has no effect.
	Fixed bool
	// PauseAtEnd is as in the CreateRequest that it was made with.
	PauseAtEnd bool
	// FrontDoor and Note are as in the CreateRequest that it was made with.
	FrontDoor, Note string
	// From is the ID of the snapshot that it goes on from, or of the instance that it is a
	// fork of; empty for a fresh one.
	From string
	// Fork is the broker's ID of the snapshot behind the fork that it is a copy of; empty for
	// none.
	Fork string
	// Network is what its owner asks for; nil for what its tenant has.
	Network *network.Request
	// Contexts are the IDs of the default contexts that were made, by language.
	Contexts map[string]string
	// Volumes that it has.
	Volumes []Volume
	// Executions in progress.
	Executions int
	// Routing says why it is on its provider.
	Routing Routing
	// Broker is the ID of the one that has it, in lists of several brokers; else empty.
	Broker string
}

// Get returns an instance of the tenant, or SB013.
func (s *Service) Get(ctx context.Context, who tenant.Tenant, id string) (Info, error) {
	return find(ctx, s, who.Name, id)
}

// Inspect is Get for the instance of whomever.
func (s *Service) Inspect(ctx context.Context, id string) (Info, error) {
	return find(ctx, s, ownerOf(id), id)
}

// Named returns the instance, of whichever tenant, whose ID has that instance part, for a
// caller who proves a right to it by something else than the tenant's token. The error is
// SB013, and tells nothing of what there was; or SB009 after a restart, as long as nobody
// knows whether it is there: its ID and its front door come with that, and nobody else than
// its owner may be told. Of one that a peer has nothing comes with the peer.ElsewhereError,
// and who asks is the peer's to find out.
func (s *Service) Named(ctx context.Context, instance string) (Info, error) {
	e, i, err := s.registry.Named(instance)
	if err != nil {
		return Info{ID: i.ID, FrontDoor: i.FrontDoor}, s.NamedElsewhere(ctx, instance, err)
	}
	e.AwaitUse()
	return infoOf(i), nil
}

func find(ctx context.Context, s *Service, owner, id string) (Info, error) {
	e, i, err := s.registry.Find(owner, id)
	if err != nil {
		return Info{}, s.InstanceElsewhere(ctx, owner, id, err)
	}
	e.AwaitUse()
	return infoOf(i), nil
}

// Renew moves the end of an instance's time to ttl from now, sooner or later than
// it was, and never beyond its maximum lifetime: ExpiresAt of the answer is what
// was granted. Zero means the instance's own TTL. It counts as a use for the idle
// limit. Errors carry SB009, SB010 or SB013.
func (s *Service) Renew(ctx context.Context, who tenant.Tenant, id string, ttl time.Duration) (Info, error) {
	if ttl < 0 {
		return Info{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be more than 0")
	}
	if s.isDraining() {
		return Info{}, shuttingDown()
	}
	e, i, err := s.registry.Renew(who.Name, id, ttl, s.limits().MaxLifetime)
	if err != nil {
		return Info{}, s.InstanceElsewhere(ctx, who.Name, id, err)
	}
	info := infoOf(i)
	// Before the answer: who is told a time may count on it.
	noting, cancel := s.noting()
	defer cancel()
	err = s.journal.of(i).Amend(noting, i.ID, func(r *Record) {
		now := e.Snapshot() // of renewals at the same time the last one in the registry is the last one here
		r.Expires, r.Used = infoOf(now).ExpiresAt, now.UseNoted
	})
	if err != nil {
		return Info{}, faultOf(e, err)
	}
	return info, nil
}

// Relabel changes the labels of an instance, those that no change at the same time has
// missed. change is called at most once, while nothing else happens to any instance. It is
// no use of the instance. Errors carry SB009, SB010 or SB013.
func (s *Service) Relabel(ctx context.Context, who tenant.Tenant, id string, change func(labels map[string]string)) (Info, error) {
	if s.isDraining() {
		return Info{}, shuttingDown()
	}
	e, i, err := s.registry.Relabel(who.Name, id, func(labels map[string]string) error {
		change(labels)
		return CheckLabels(labels)
	})
	if err != nil {
		return Info{}, s.InstanceElsewhere(ctx, who.Name, id, err)
	}
	noting, cancel := s.noting()
	defer cancel()
	// The journal may take those of requests at the same time in another order than the
	// registry: what it takes is what the registry has by then.
	err = s.journal.of(i).Amend(noting, i.ID, func(r *Record) { r.Labels = e.Snapshot().Labels })
	if err != nil {
		return Info{}, faultOf(e, err)
	}
	return infoOf(i), nil
}

// Page is a part of a list.
type Page struct {
	Instances []Info
	// More says that the limit left some out.
	More bool
}

// Confirm asks the provider of an instance whether it still has it, for who has reason to
// doubt that. One that is not listed is lost from then on, unless it is so young that the
// list may only be late. The error is SB013 for one that is no more, and else says why it
// is not known.
func (s *Service) Confirm(ctx context.Context, who tenant.Tenant, id string) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	e, _, err := s.registry.Find(who.Name, id)
	if err != nil {
		return s.InstanceElsewhere(ctx, who.Name, id, err)
	}
	if err := s.reconciler.Confirm(ctx, e); err != nil {
		return faultOf(e, providerCall{label: e.Label(), caller: ctx, ctx: ctx}.told(err))
	}
	_, _, err = s.registry.Find(who.Name, id)
	return err
}

// infoOf describes an instance.
func infoOf(i registry.Instance) Info {
	info := Info{
		ID:         i.ID,
		Provider:   i.Label,
		Template:   i.Template,
		Metadata:   maps.Clone(i.Sandbox.Metadata),
		Labels:     maps.Clone(i.Labels),
		Paused:     i.Paused(),
		CreatedAt:  i.Created,
		LastUsed:   i.LastUsed,
		ExpiresAt:  i.Expires,
		TTL:        i.TTL,
		Idle:       i.Idle,
		Fixed:      i.Fixed,
		PauseAtEnd: i.PauseAtEnd,
		FrontDoor:  i.FrontDoor,
		Note:       i.Note,
		From:       i.From,
		Fork:       i.Fork,
		Network:    i.Network,
		Contexts:   i.Contexts,
		Volumes:    i.Volumes,
		Executions: i.Executions,
		Routing:    i.Routing,
	}
	switch {
	case i.PauseAtEnd && i.State.MayBePaused():
		info.ExpiresAt = i.Deadline // whatever its time was
	case i.Holds > 0:
		info.ExpiresAt = i.Expiry(time.Now()) // the executions' end will move it so far at least
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
	for _, p := range offer.Usable() {
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
		if p := routing.Labelled(offer.Providers, label); p != nil {
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

// What instances are doing, in counts of them.
const (
	StateCreating = "creating"
	// StateUnclear is of those of which nobody knows whether the provider has them: a
	// creation ended without a clear answer, or an earlier process left a record that
	// the provider has not answered for yet.
	StateUnclear = "unclear"
	StateLive    = "live"
	StatePaused  = "paused"
	// StateEnding is of those that are being destroyed, what nobody knows included.
	StateEnding = "ending"
)

// States are those that instances are counted by.
func States() []string {
	return []string{StateCreating, StateUnclear, StateLive, StatePaused, StateEnding}
}

// CountByState says how many instances of all tenants there are, by what they are doing.
func (s *Service) CountByState() map[string]int {
	total := noneByState()
	for _, counts := range s.CountByProvider() {
		for state, n := range counts {
			total[state] += n
		}
	}
	return total
}

// CountByProvider is CountByState for each provider that there is, or that has some, by
// label.
func (s *Service) CountByProvider() map[string]map[string]int {
	counts := map[string]map[string]int{}
	for _, p := range s.catalog.Providers() {
		counts[p.Label()] = noneByState()
	}
	add := func(label, state string, n int) {
		if counts[label] == nil {
			counts[label] = noneByState()
		}
		counts[label][state] += n
	}
	for label, states := range s.registry.Counts() {
		for state, n := range states {
			add(label, countedAs(state), n)
		}
	}
	for label, n := range s.reconciler.Orphans() {
		add(label, StateEnding, n)
	}
	return counts
}

// countedAs is the state that instances are counted by.
func countedAs(state registry.State) string {
	switch {
	case state.Creating():
		return StateCreating
	case state.Unclear(), state.Left():
		return StateUnclear
	case state == registry.Paused, state == registry.Resuming:
		return StatePaused
	case state.Visible():
		return StateLive
	default:
		return StateEnding
	}
}

func noneByState() map[string]int {
	counts := map[string]int{}
	for _, state := range States() {
		counts[state] = 0
	}
	return counts
}
