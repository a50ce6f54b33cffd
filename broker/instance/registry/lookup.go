package registry

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Find returns a visible instance of the tenant whose time is not over. The error is
// SB013, or SB009 for one of which nobody knows yet.
func (r *Registry) Find(tenant, id string) (e *Entry, i Instance, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, err = r.find(tenant, id, time.Now()); err != nil {
		return nil, Instance{}, err
	}
	return e, e.snapshot(), nil
}

// Named is Find for the instance whose ID has that instance part, whosever it is. Since
// nobody knows whose its caller is, the error tells nothing but SB013. Of one that an
// earlier process left, and of which its provider has not said anything yet, the ID and the
// front door come with SB009, for whoever turns out to be its owner.
func (r *Registry) Named(instance string) (*Entry, Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byName[instance]
	if e != nil && e.state == Unknown && e.left.Adoptable() {
		i := Instance{ID: e.id}
		i.FrontDoor = e.left.FrontDoor
		return nil, i, stillUnknown(e.left)
	}
	if e == nil || !e.state.Visible() || e.expire(time.Now()) {
		return nil, Instance{}, NoSuchInstance()
	}
	return e, e.snapshot(), nil
}

func (r *Registry) find(tenant, id string, now time.Time) (*Entry, error) {
	e := r.entries[id]
	if e == nil || e.id.Tenant != tenant || !e.state.Visible() || e.expire(now) {
		return nil, r.absent(tenant, id)
	}
	return e, nil
}

// Hold is Find that keeps the instance from being destroyed by time until Entry.Release.
func (r *Registry) Hold(tenant, id string) (*Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(tenant, id, time.Now())
	if err != nil {
		return nil, err
	}
	e.holds++
	e.noteUse()
	e.schedule()
	return e, nil
}

// Renew moves the end of an instance's time to ttl from now, or to its own TTL if that is
// 0, by most at the most. The errors are those of Find.
func (r *Registry) Renew(tenant, id string, ttl, most time.Duration) (*Entry, Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	e, err := r.find(tenant, id, now)
	if err != nil {
		return nil, Instance{}, err
	}
	e.renew(now, ttl, most)
	e.schedule()
	return e, e.snapshot(), nil
}

// Relabel gives an instance other labels: what change makes of those that it has, in a map
// which is not to be changed afterwards. The errors are those of Find, and that of change,
// after which the instance has the labels that it had.
func (r *Registry) Relabel(tenant, id string, change func(labels map[string]string) error) (*Entry, Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(tenant, id, time.Now())
	if err != nil {
		return nil, Instance{}, err
	}
	labels := map[string]string{}
	maps.Copy(labels, e.Labels)
	if err := change(labels); err != nil {
		return nil, Instance{}, err
	}
	e.Labels = labels
	return e, e.snapshot(), nil
}

// Destroy hides an instance of the tenant, for its caller to destroy. Its executions end
// with stopReason, and its owner is told reason, if there is one. One that is being
// destroyed may be destroyed once more.
func (r *Registry) Destroy(tenant, id, stopReason, reason string) (e *Entry, i Instance, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = r.entries[id]
	if e == nil || e.id.Tenant != tenant || e.notKept || r.transition(e, destroyEvent(e)) != nil {
		return nil, Instance{}, r.absent(tenant, id)
	}
	e.stopReason = stopReason
	e.reason = cmp.Or(reason, e.reason)
	e.retryAt = time.Time{}
	e.schedule()
	return e, e.snapshot(), nil
}

// destroyEvent is that of somebody who destroys an entry: one that drains ends by itself.
func destroyEvent(e *Entry) Event {
	if e.state == Draining {
		return 0
	}
	return Terminate
}

// Home returns the entry of a session on a provider; nil if there is none.
func (r *Registry) Home(key SessionKey) (e *Entry, i Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = r.sessions[key]
	if e == nil || e.expire(time.Now()) {
		return nil, Instance{}
	}
	return e, e.snapshot()
}

// ListRequest selects instances; empty fields select all.
type ListRequest struct {
	// Labels that an instance must have, with these values.
	Labels map[string]string
	// Session, Provider and FrontDoor by name.
	Session, Provider, FrontDoor string
	// Text is a part of the ID, which has tenant and session, or of the template, in
	// whatever case.
	Text string
	// Paused selects those that are paused, or those that are not; nil for both.
	Paused *bool
	// Ending has those in the answer too that are being destroyed.
	Ending bool
	// Limit of instances in the answer; 0 for none.
	Limit int
	// After is the ID of the last instance that the caller has already.
	After string
}

// List returns the visible instances of a tenant, and those that are being destroyed if the
// request says so, in the order of their IDs, and whether
// the limit has left some out.
func (r *Registry) List(tenant string, req ListRequest) (page []Instance, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list([]string{tenant}, req)
}

// ListAll is List for all tenants.
func (r *Registry) ListAll(req ListRequest) (page []Instance, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// No name has a colon, so that the IDs are in the order of the names with one.
	return r.list(slices.SortedFunc(maps.Keys(r.tenants), func(a, b string) int { return cmp.Compare(a+":", b+":") }), req)
}

func (r *Registry) list(tenants []string, req ListRequest) (page []Instance, more bool) {
	now := time.Now()
	for e := range r.inOrder(tenants, req.After) {
		ending := req.Ending && e.state == Terminating
		if !e.state.Visible() && !ending || !e.selected(req) || !ending && e.expire(now) {
			continue
		}
		if req.Limit > 0 && len(page) == req.Limit {
			return page, true
		}
		page = append(page, e.snapshot())
	}
	return page, false
}

// inOrder returns entries in the order of their IDs, after one of them. Entries that
// change meanwhile stay where they are: what leaves the registry does so elsewhere.
func (r *Registry) inOrder(tenants []string, after string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, name := range tenants {
			list := r.tenants[name]
			i, found := slices.BinarySearchFunc(list, after, func(e *Entry, id string) int { return cmp.Compare(e.name, id) })
			if found {
				i++
			}
			for _, e := range list[i:] {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func (e *Entry) selected(req ListRequest) bool {
	if req.Session != "" && req.Session != e.id.Session || req.Provider != "" && req.Provider != e.label ||
		req.FrontDoor != "" && req.FrontDoor != e.FrontDoor ||
		req.Paused != nil && *req.Paused != paused(e.state, e.endPause) || req.Text != "" && !named(e, req.Text) {
		return false
	}
	for name, value := range req.Labels {
		if v, has := e.Labels[name]; !has || v != value {
			return false
		}
	}
	return true
}

// named reports whether a text is a part of the names of an instance.
func named(e *Entry, text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(strings.ToLower(e.name), text) || strings.Contains(strings.ToLower(e.Template), text)
}

// Counts says how many instances are in each state, by the label of the provider.
func (r *Registry) Counts() map[string]map[State]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]map[State]int{}
	for label, ofLabel := range r.counts {
		counts[label] = map[State]int{}
		for state, n := range ofLabel {
			if n > 0 {
				counts[label][State(state)] = n
			}
		}
	}
	return counts
}

// ByName returns the entry whose ID has that instance part; nil if there is none.
func (r *Registry) ByName(instance string) (e *Entry, i Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return view(r.byName[instance])
}

// ByProvidersID returns the entry that has what a provider calls so; nil if there is none.
func (r *Registry) ByProvidersID(label, id string) (e *Entry, i Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return view(r.sandbox[SandboxKey{label, id}])
}

func view(e *Entry) (*Entry, Instance) {
	if e == nil {
		return nil, Instance{}
	}
	return e, e.snapshot()
}

// Left returns what an earlier process left on the providers of a label, and of which
// they have not said anything yet; of all labels if that is empty.
func (r *Registry) Left(label string) (entries []*Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, set := range r.left {
		if label == "" || label == of {
			entries = slices.AppendSeq(entries, maps.Keys(set))
		}
	}
	return entries
}

// Awaited returns those of a tenant that an earlier process made by a front door, for a
// session, each of them any if it is empty, and of which their providers have not said
// anything yet. Nothing but the IDs, the front door and Changed is known of them.
func (r *Registry) Awaited(tenant, session, frontDoor string) (all []Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := r.tenants[tenant]
	if session != "" {
		entries = r.work[WorkKey{tenant, session}]
	}
	for _, e := range entries {
		if e.state == Unknown && e.left.Adoptable() && (frontDoor == "" || e.left.FrontDoor == frontDoor) {
			i := Instance{ID: e.id, Changed: e.changed}
			i.FrontDoor = e.left.FrontDoor
			all = append(all, i)
		}
	}
	return all
}

// Adopt makes an instance of what an earlier process left, as its provider lists it. It
// reports whether that was still unknown; not if somebody else has what is listed, nor if
// the owner was lost meanwhile: serves says, under the registry's lock, whether the owner
// may have instances beside those that keep it. An expiry that was due meanwhile is
// Expire's.
func (e *Entry) Adopt(owner routing.Provider, listed sdk.Instance, maxLifetime time.Duration, serves func() bool) (i Instance, adopted bool) {
	e.locked(func() {
		r, left := e.registry, e.left
		event := Adopted
		if left.Paused {
			event = AdoptedPaused
		}
		key := e.sessionKey()
		if r.isLost(owner) || r.retired[owner] == nil && !serves() {
			return
		}
		if r.holder(e, listed.ID) != nil || !left.Adoptable() || r.sessions[key] != nil && r.sessions[key] != e || r.transition(e, event) != nil {
			return
		}
		e.Spec = Spec{
			Template: left.Template, Image: left.Image, TTL: left.TTL, Idle: left.Idle, Labels: left.Labels, Claimed: left.Claimed,
			OneShot: left.OneShot, Fixed: left.Fixed, PauseAtEnd: left.PauseAtEnd, FrontDoor: left.FrontDoor, Note: left.Note, Volumes: left.Volumes,
			Intended: left.Intended, Routing: left.Routing, From: left.From, Fork: left.Fork, Carries: left.Carries, Network: left.Network,
		}
		e.provider, e.sandbox, e.contexts, e.useNoted = owner, listed, left.Contexts, left.Used
		if left.Made == "" {
			e.begin(left.Intended, maxLifetime)
		} else {
			e.sandbox.Metadata = maps.Clone(left.Metadata)
			e.created, e.lastUsed, e.expires, e.deadline = left.Created, left.Created, left.Expires, left.Deadline
		}
		if left.Used { // at the latest when the process before this one ended
			e.use(time.Now())
		}
		r.setSandbox(e, listed.ID)
		r.place(e)
		r.own(e)
		r.charging.set(e, e.permit.NextCharge())
		i, adopted = e.snapshot(), true
	})
	return i, adopted
}

// Settle ends the waiting for what an earlier process left, with what its owner is told.
// It returns what the quotas count for it; ok is false if it was not waited for any more.
func (e *Entry) Settle(t Tombstone) (permit *quota.Instance, ok bool) {
	e.locked(func() {
		if ok = e.settle(t); ok {
			permit = e.permit
		}
	})
	return permit, ok
}

// settle is Settle under the registry's lock.
func (e *Entry) settle(t Tombstone) bool {
	if !e.state.Left() || e.registry.transition(e, Vanished) != nil {
		return false
	}
	if e.tenantRemoved {
		t.Reason = "" // nobody may ask any more
	}
	e.registry.tombstones.add(t)
	return true
}

// SettleGone is Settle of what is no more: the journal is to be told, and what the quotas
// count is released then.
func (e *Entry) SettleGone(t Tombstone) (ok bool) {
	e.locked(func() {
		if ok = e.settle(t); ok {
			e.registry.effects.Ended(t, e.permit, true)
		}
	})
	return ok
}
