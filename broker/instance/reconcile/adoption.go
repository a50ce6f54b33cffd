package reconcile

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// adopter returns the provider as one whose instances any broker can serve; nil if it is none.
func adopter(owner routing.Provider, provider sdk.Provider) sdk.Adopter {
	if !slices.Contains(owner.Description().Capabilities, sdk.CapabilityAdoption) {
		return nil
	}
	a, _ := provider.(sdk.Adopter)
	return a
}

// forgetTold is for a process of a provider that has just started.
func (r *Reconciler) forgetTold(owner routing.Provider) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, owner)
}

// tellAdopted has a provider know, before it is asked what it has, which instances are this
// broker's that another one has made. It returns those of which it could not be told.
func (r *Reconciler) tellAdopted(ctx context.Context, owner routing.Provider, provider sdk.Provider) (unsettled map[*registry.Entry]bool) {
	a := adopter(owner, provider)
	if a == nil {
		return nil
	}
	r.mu.Lock()
	before := r.told[owner]
	r.mu.Unlock()
	now := map[*registry.Entry]bool{}
	unsettled = map[*registry.Entry]bool{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(ParallelDestroys)
	for _, e := range slices.Concat(r.Registry.Left(owner.Label()), r.Registry.On(owner)) {
		i := e.Snapshot()
		id, carries := i.Sandbox.ID, i.Carries
		if i.State.Left() {
			id, carries = i.Left.Made, i.Left.Carries
		}
		if carries == "" || id == "" {
			continue
		}
		if before[e] {
			now[e] = true
			continue
		}
		unsettled[e] = true
		group.Go(func() error {
			err := a.Adopt(origin.With(ctx, origin.Origin{Cause: origin.Reconcile, Tenant: i.ID.Tenant}), id, carries)
			if err != nil && sdk.CodeOf(err) != sdk.CodeNotFound { // of which the list says the same
				r.Logger.Warn("a provider could not be told of an instance that was adopted; it is tried again", "provider", owner.Label(), "instance", i.ID.String(), "error", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			now[e] = err == nil
			delete(unsettled, e)
			return nil
		})
	}
	_ = group.Wait() // they say what failed
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[owner] = now
	return unsettled
}

// spareHeld takes out of the orphans the instances that the shared state has a record of.
//
// An instance carries this broker's ID also when another broker has adopted it, where the
// provider's service cannot change that; spareHeld has the provider leave it alone. An instance
// may also have become this broker's since the provider was asked, at the time asked: the database
// knows of an adoption before the registry does.
//
// Where the holders are not known, nothing is destroyed. known reports whether all of the rest are
// orphans for certain.
func (r *Reconciler) spareHeld(ctx context.Context, owner routing.Provider, provider sdk.Provider, listed []sdk.Instance, orphans map[string]string, asked time.Time) (known bool) {
	if r.Holders == nil || len(orphans) == 0 {
		return true
	}
	names := map[string]string{}
	for _, i := range listed {
		if _, orphan := orphans[i.ID]; orphan {
			names[i.ID] = i.Labels[sdk.LabelInstance]
		}
	}
	others, own, err := r.Holders.HeldInstances(ctx, owner.Label(), names)
	if err != nil {
		r.Logger.Warn("instances that nobody knows are left alone, since it is not known which are those of other brokers; it is tried again", "provider", owner.Label(), "count", len(orphans), "error", err)
		clear(orphans)
		return false
	}
	a := adopter(owner, provider)
	for id := range others {
		delete(orphans, id)
		if a == nil {
			continue
		}
		if err := a.Release(ctx, id); err != nil {
			r.Logger.Warn("a provider could not be told that an instance is another broker's", "provider", owner.Label(), "id", id, "error", err)
		}
	}
	known = true
	for id := range own {
		if e, now := r.Registry.ByProvidersID(owner.Label(), id); e != nil && now.State.Left() && !now.Loaded.After(asked) {
			continue // its record was compared with the list, and is to end with it
		}
		delete(orphans, id)
		known = false // the next list tells
	}
	return known
}
