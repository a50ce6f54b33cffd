package reconcile

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// orphan is an instance that a provider has and nobody knows. It counts for its tenant as
// long as it is there: else that would get another in its place.
type orphan struct {
	permit *quota.Instance
	// left is what the journal is told when it is gone, nil if it knows nothing of it.
	// Until then its record stays, so that it counts for the process after this one too.
	left *registry.Tombstone
}

// orphaned has an instance that is to be destroyed go on counting as the record did
// that it was left by.
func (r *Reconciler) orphaned(owner routing.Provider, providersID string, permit *quota.Instance, adoptable bool, ended registry.Tombstone) {
	key := registry.SandboxKey{Provider: owner.Label(), ID: providersID}
	r.mu.Lock()
	before := r.orphans[key]
	r.orphans[key] = orphan{permit, &ended}
	r.mu.Unlock()
	before.permit.Release()
	if adoptable {
		r.write(func(ctx context.Context) error {
			return r.Journal.Amend(ctx, ended.ID, func(r *registry.Record) { r.Ending = true })
		})
	}
}

// orphanDestroyed is told how the destruction of one went.
func (r *Reconciler) orphanDestroyed(key registry.SandboxKey, tenant string, failure error) {
	if failure == nil {
		r.orphanGone(key)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := r.orphans[key]; found {
		return
	}
	var o orphan
	if tenant != "" {
		o.permit = r.Quotas.Adopt(tenant, key.Provider, false)
	}
	r.orphans[key] = o
}

// orphanGone ends the counting of one.
func (r *Reconciler) orphanGone(key registry.SandboxKey) {
	r.mu.Lock()
	o := r.orphans[key]
	delete(r.orphans, key)
	r.mu.Unlock()
	if o.left != nil {
		r.Ended(*o.left, o.permit) // and counts until the journal knows
		return
	}
	o.permit.Release()
}

// forgetOrphans ends the counting of those that are not listed any more.
func (r *Reconciler) forgetOrphans(owner routing.Provider, there map[string]bool) {
	for _, key := range r.orphansOf(owner.Label()) {
		if !there[key.ID] {
			r.orphanGone(key)
		}
	}
}

func (r *Reconciler) orphansOf(label string) (keys []registry.SandboxKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.orphans {
		if key.Provider == label {
			keys = append(keys, key)
		}
	}
	return keys
}

// Orphans says how many there are, by the label of the provider.
func (r *Reconciler) Orphans() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{}
	for key := range r.orphans {
		counts[key.Provider]++
	}
	return counts
}

// tenantOf returns the tenant that an instance counts for which nobody knows, "" for
// none: the one whose instance or record has its name, and else the one that its labels
// name. These are the plugin's word alone, which shall fill the quotas of nobody that may
// not use the provider.
func (r *Reconciler) tenantOf(c comparison, name string, i sdk.Instance) string {
	label := c.owner.Label()
	for _, expected := range c.expected {
		if expected.ID.Instance == name {
			return expected.ID.Tenant
		}
	}
	if e, known := r.Registry.ByName(name); e != nil && known.Label == label {
		return known.ID.Tenant
	}
	// What the catalog does not know remains as it is asked for: allowed nothing.
	unknown := tenant.Tenant{Name: i.Labels[sdk.LabelTenant], Providers: []string{""}}
	if unknown.Name == "" || !r.Catalog.Offer(unknown).Tenant.Allows(label) {
		return ""
	}
	return unknown.Name
}

// write writes something down in the background.
func (r *Reconciler) write(what func(context.Context) error) {
	r.Tasks.Go("write to the journal", func() {
		ctx, cancel := r.Writing()
		defer cancel()
		if err := what(ctx); err != nil {
			r.Logger.Warn("the end of instances could not be written down", "error", err)
		}
	})
}

// After a loss of the journal a cloud may have instances that nobody knows of. Until it
// has listed them, and they are destroyed or count, it is asked for no others: a session
// could have two, and a tenant more than its quota.

// lossPatience bounds how long a session waits for clouds that it is not to be placed on.
const lossPatience = 5 * time.Minute

// Complete returns why no instance can be made on a provider yet, for a session or
// without one.
func (r *Reconciler) Complete(target routing.Provider, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.incomplete == nil {
		return nil
	}
	for _, p := range r.Catalog.Providers() {
		if p.Description().Ephemeral || r.listed[p.Label()] {
			continue
		}
		if p.Label() != target.Label() && (session == "" || time.Since(r.Began) > failpoint.Hasten(lossPatience)) {
			continue
		}
		e := sdk.Errorf(sdk.CodeUnavailable, "the broker has lost a part of its state, and provider %q has not said yet which instances it has", p.Label())
		e.RetryAfter, e.NoEffect = 5*time.Second, true
		return e
	}
	return nil
}

// hasListed is told that a provider was reconciled with a list that it was asked for at
// that time.
func (r *Reconciler) hasListed(owner routing.Provider, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.incomplete == nil || asked.Sub(r.Began) < failpoint.Hasten(ListDelay) {
		return
	}
	r.listed[owner.Label()] = true
	for _, p := range r.Catalog.Providers() {
		if !p.Description().Ephemeral && !r.listed[p.Label()] {
			return
		}
	}
	over := r.incomplete
	r.incomplete = nil
	r.Tasks.Go("end a loss", over)
}
