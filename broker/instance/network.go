package instance

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

const (
	// networkTimeout bounds the change of one instance's network.
	networkTimeout = 30 * time.Second
	// networkRetry is when a change that did not work is tried again.
	networkRetry = 2 * time.Second
	// parallelNetworks is how many are changed at a time.
	parallelNetworks = 8
)

// Tenants are those of the configuration in force.
type Tenants interface {
	Tenant(name string) (tenant.Tenant, bool)
}

// networks keep what instances may reach as their tenants' configuration says.
type networks struct {
	*lifecycle
	tenants  Tenants // nil where they do not change
	registry *registry.Registry
	news     chan struct{} // has room for one
	// giving is held by who tells a provider: the last who has looked is the last who tells.
	giving keylock.Locks[ID]
}

func newNetworks(life *lifecycle, tenants Tenants, all *registry.Registry) *networks {
	return &networks{lifecycle: life, tenants: tenants, registry: all, news: make(chan struct{}, 1)}
}

// tenantNow is a tenant as the configuration in force has it.
func (n *networks) tenantNow(who tenant.Tenant) tenant.Tenant {
	if n.tenants == nil {
		return who
	}
	now, _ := n.tenants.Tenant(who.Name)
	return now // of one that was removed nothing is left
}

// look has it looked at whether all instances have what they should.
func (n *networks) look() {
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// run looks until the service's lifetime ends.
func (n *networks) run() {
	retry := time.NewTimer(networkRetry)
	defer retry.Stop()
	for {
		select {
		case <-n.news:
		case <-retry.C:
		case <-n.lifetime.Done():
			return
		}
		if !n.apply() {
			retry.Reset(networkRetry)
		}
	}
}

// apply gives all instances what they should have, and reports whether all have it.
func (n *networks) apply() bool {
	page, _ := n.registry.ListAll(ListRequest{})
	group := errgroup.Group{}
	group.SetLimit(parallelNetworks)
	for _, i := range page {
		if n.differs(i) {
			group.Go(func() error { return n.giveLater(i.ID) })
		}
	}
	return group.Wait() == nil
}

// differs reports whether an instance should have something else than its provider was told.
func (n *networks) differs(i registry.Instance) bool {
	if n.tenants == nil || i.Provider == nil || i.Sandbox.ID == "" || !governs(i.Provider) {
		return false
	}
	policy := network.Effective(n.tenantNow(tenant.Tenant{Name: i.ID.Tenant}).Network, i.Network)
	return i.Governed == nil || *i.Governed != network.Fingerprint(policy)
}

// giveLater tells a provider what an instance of it may reach, because that has changed.
func (n *networks) giveLater(id ID) error {
	ctx, cancel := context.WithTimeout(origin.With(n.lifetime, origin.Origin{Cause: origin.Reload}), networkTimeout)
	defer cancel()
	err := n.give(ctx, id)
	if sdk.CodeOf(err) == sdk.CodeNotFound {
		return nil // whoever uses it finds out
	}
	if err != nil && n.lifetime.Err() == nil {
		n.logger.Warn("the network of an instance could not be changed; it is tried again", "instance", id.String(), "error", err)
	}
	return err
}

// give tells a provider what an instance of it may reach.
func (n *networks) give(ctx context.Context, id ID) error {
	release, err := n.giving.Take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	e, i := n.registry.ByName(id.Instance)
	if e == nil || i.Provider == nil || i.Sandbox.ID == "" {
		return nil // it has ended
	}
	policy := n.wanted(tenant.Tenant{Name: id.Tenant}, i.Provider, i.Network)
	told := sdk.NetworkPolicy{}
	if policy != nil {
		told = *policy
	}
	provider, err := i.Provider.Provider(ctx)
	if err != nil {
		return err
	}
	governor, ok := provider.(sdk.NetworkGovernor)
	if !ok {
		return lacksInterface()
	}
	if err := governor.SetNetwork(ctx, i.Sandbox.ID, told); err != nil {
		return explained(ctx, provider, err)
	}
	registry.Govern(e, network.Fingerprint(policy))
	return nil
}

// SetNetwork has an instance reach another part of what its tenant may. After an error it is as
// the caller asked, or will be: what has been written down is tried again. Errors carry SB009,
// SB010, SB012, SB013, SB014 or SB015.
func (s *Service) SetNetwork(ctx context.Context, who tenant.Tenant, id string, asked network.Request) (Info, error) {
	if err := network.Check(s.networks.tenantNow(who).Network, &asked); err != nil {
		return Info{}, err
	}
	lease, err := s.Lease(ctx, who, id, sdk.CapabilityNetwork)
	if err != nil {
		return Info{}, err
	}
	defer lease.Release()
	e := lease.entry
	registry.AskNetwork(e, &asked)
	noting, cancel := s.noting()
	defer cancel()
	err = s.journal.of(e.Snapshot()).Amend(noting, e.ID(), func(r *Record) { r.Network = e.Snapshot().Network })
	if err != nil {
		return Info{}, faultOf(e, err)
	}
	ctx, stop := s.bounded(context.WithoutCancel(ctx), networkTimeout)
	defer stop()
	if err := s.networks.give(ctx, e.ID()); err != nil {
		s.networks.look()
		return Info{}, lease.Fault(ctx, err)
	}
	return lease.Info(), nil
}
