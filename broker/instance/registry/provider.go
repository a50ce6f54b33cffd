package registry

import (
	"maps"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
)

// retirement is that of a provider which gets no new instances.
type retirement struct {
	empty chan struct{} // closed when it has no entries
	// lost means that nobody can reach it any more: what a creation or a list still
	// says of its instances is of no use.
	lost bool
}

// Retire says that a provider gets no new instances. Those that it has live on. What it
// returns is closed when none is left.
func (r *Registry) Retire(p routing.Provider) (empty <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	retired := r.retirement(p)
	r.closeIfEmpty(p)
	return retired.empty
}

// LoseAll ends what there is on a provider that nobody can reach any more. A creation
// that has not ended is forgotten when it has.
func (r *Registry) LoseAll(p routing.Provider, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retirement(p).lost = true
	for _, e := range slices.Collect(maps.Keys(r.entriesOn(p))) {
		if !e.state.Creating() {
			_ = r.vanish(e, Vanished, reason)
		}
	}
	r.closeIfEmpty(p)
}

// retirement returns that of a provider, which may begin now. Its caller calls
// closeIfEmpty.
func (r *Registry) retirement(p routing.Provider) *retirement {
	if r.retired[p] == nil {
		r.retired[p] = &retirement{empty: make(chan struct{})}
	}
	return r.retired[p]
}

// closeIfEmpty ends the retirement of a provider that has no entries any more.
func (r *Registry) closeIfEmpty(p routing.Provider) {
	if retired := r.retired[p]; retired != nil && r.onProv[p] == nil {
		close(retired.empty)
		delete(r.retired, p)
	}
}

// Lost reports whether nobody can reach a provider any more.
func (r *Registry) Lost(p routing.Provider) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isLost(p)
}

func (r *Registry) isLost(p routing.Provider) bool { return r.retired[p] != nil && r.retired[p].lost }

// Retiring returns the providers that get no new instances, and have some still.
func (r *Registry) Retiring() []routing.Provider {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.retired))
}

// Count says how many instances there are on a provider, those that are being made or
// destroyed included, and how many of them somebody may have something of: those that
// were given up, and may be there still, do not count.
func (r *Registry) Count(p routing.Provider) (all, inUse int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fleet := r.onProv[p]
	if fleet == nil {
		return 0, 0
	}
	for state, n := range fleet.states {
		if s := State(state); s.Creating() || s.Visible() {
			inUse += n
		}
	}
	return len(fleet.entries), inUse
}

func (r *Registry) entriesOn(p routing.Provider) map[*Entry]struct{} {
	if fleet := r.onProv[p]; fleet != nil {
		return fleet.entries
	}
	return nil
}

// On returns the instances of a provider whose creation has ended with a clear answer.
func (r *Registry) On(p routing.Provider) (entries []*Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.entriesOn(p) {
		if e.state.Decided() {
			entries = append(entries, e)
		}
	}
	return entries
}

// RemoveTenants ends all that belongs to tenants which are none any more: nobody sees it
// from then on, so that who gets such a name gets nothing with it. stopReason is what
// executions are told. It returns the instances that this concerns.
func (r *Registry) RemoveTenants(known func(tenant string) bool, stopReason string) (ended []*Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, list := range r.tenants {
		if known(name) {
			continue
		}
		for _, e := range slices.Clone(list) {
			if e.tenantRemoved || e.state == Orphaned {
				continue
			}
			visible := e.state.Visible()
			if r.transition(e, TenantRemoved) != nil {
				continue
			}
			e.tenantRemoved, e.stopReason = true, stopReason
			ended = append(ended, e)
			switch {
			case visible:
				r.effects.Terminate(e)
			case e.state == PendingDetached, e.state == RecordingDetached:
				e.cancelCreation()
			}
			e.schedule()
		}
	}
	r.tombstones.forget(func(t Tombstone) bool { return !known(t.ID.Tenant) })
	return ended
}

// Shutdown hides what is not to be kept, for its caller to destroy, and says how many are
// kept. Kept instances stay: a plugin that starts once more before it is stopped must find
// them known.
func (r *Registry) Shutdown(keep func(Instance) bool) (destroy []*Entry, kept int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, e := range r.entries {
		switch {
		case e.state.Left(), e.state.Creating(), e.state.Unclear(), e.state == Draining:
			continue
		case e.state == Terminating && e.notKept && e.retryAt.IsZero():
			continue // it is being destroyed
		}
		// Whoever has it next pauses what is to be paused when its time is over.
		expired := e.over(now) && (!e.PauseAtEnd || !now.Before(e.deadline))
		if e.state.Visible() {
			if !expired && keep(e.snapshot()) {
				kept++
				continue
			}
			_ = r.transition(e, Terminate)
			e.schedule()
		}
		switch {
		case e.reason != "" || e.stopReason != "" || e.notKept:
		case expired:
			e.reason = ReasonExpired
		default:
			e.reason = ReasonStop
		}
		destroy = append(destroy, e)
	}
	return destroy, kept
}
