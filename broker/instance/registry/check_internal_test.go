package registry

import (
	"fmt"
	"slices"
	"time"
)

// Check compares every index, queue and count with a scan of all entries.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, check := range []func() error{r.checkEntries, r.checkSizes, r.checkOwners, r.checkCounts, r.checkQueues, r.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) checkEntries() error {
	for name, e := range r.entries {
		work := WorkKey{e.id.Tenant, e.id.Session}
		fleet := r.onProv[e.provider]
		_, left := r.left[e.label][e]
		placed := false
		if fleet != nil {
			_, placed = fleet.entries[e]
		}
		switch {
		case name != e.name || name != e.id.String() || r.byName[e.id.Instance] != e:
			return fmt.Errorf("%s is not found by its name", name)
		case e.state == Gone:
			return fmt.Errorf("%s is gone and still there", name)
		case !slices.Contains(r.work[work], e) || !slices.Contains(r.tenants[e.id.Tenant], e):
			return fmt.Errorf("%s is not among those of its session and tenant", name)
		case left != e.state.Left() || placed == left:
			return fmt.Errorf("%s, %s, is left: %t, and on a provider: %t", name, e.state, left, placed)
		case e.sandboxID != "" && r.sandbox[SandboxKey{e.label, e.sandboxID}] != e:
			return fmt.Errorf("%s is not found by its provider's ID", name)
		case e.waiters < 0 || e.holds < 0 || e.executions < 0:
			return fmt.Errorf("%s has %d waiters, %d holds, %d executions", name, e.waiters, e.holds, e.executions)
		case e.state == Draining && e.holds == 0:
			return fmt.Errorf("%s drains, and nobody uses it", name)
		}
	}
	return nil
}

// checkSizes finds what is in an index and is no entry, or twice.
func (r *Registry) checkSizes() error {
	n, sizes := len(r.entries), map[string]int{"by name": len(r.byName)}
	for work, list := range r.work {
		sizes["work"] += len(list)
		if len(list) == 0 {
			return fmt.Errorf("%v has an empty list", work)
		}
	}
	for tenant, list := range r.tenants {
		sizes["tenants"] += len(list)
		if len(list) == 0 || !slices.IsSortedFunc(list, byID) {
			return fmt.Errorf("the list of tenant %s is empty or not in order", tenant)
		}
	}
	for _, fleet := range r.onProv {
		sizes["places"] += len(fleet.entries)
	}
	for _, left := range r.left {
		sizes["places"] += len(left)
	}
	for index, size := range sizes {
		if size != n {
			return fmt.Errorf("there are %d entries, and %d in the index %s", n, size, index)
		}
	}
	for key, e := range r.sandbox {
		if r.entries[e.name] != e || key != (SandboxKey{e.label, e.sandboxID}) {
			return fmt.Errorf("%v stands for %s, which has %s", key, e.name, e.sandboxID)
		}
	}
	return nil
}

// checkOwners: what may be used, or will be, is its session's, and what was given up is not.
func (r *Registry) checkOwners() error {
	for key, e := range r.sessions {
		if r.entries[e.name] != e || e.sessionKey() != key {
			return fmt.Errorf("%v has %s, which is not there or another's", key, e.name)
		}
	}
	for _, e := range r.entries {
		owns := r.sessions[e.sessionKey()] == e
		may := e.state != Orphaned && !e.state.Detached() && e.state < Draining
		must := may && e.state != Unknown
		if owns && !may || must && !owns {
			return fmt.Errorf("%s, %s, is its session's: %t", e.name, e.state, owns)
		}
	}
	return nil
}

func (r *Registry) checkCounts() error {
	byLabel, fleets := map[string]*[Gone + 1]int{}, map[*fleet]*[Gone + 1]int{}
	for label := range r.counts {
		byLabel[label] = new([Gone + 1]int)
	}
	for p, f := range r.onProv {
		if fleets[f] = new([Gone + 1]int); len(f.entries) == 0 {
			return fmt.Errorf("%v has an empty fleet", p)
		}
		for e := range f.entries {
			fleets[f][e.state]++
		}
		if *fleets[f] != f.states {
			return fmt.Errorf("the fleet of %v has %v, and counts %v", p, *fleets[f], f.states)
		}
	}
	for _, e := range r.entries {
		byLabel[e.label][e.state]++
	}
	for label, counts := range byLabel {
		if *counts != *r.counts[label] {
			return fmt.Errorf("there are %v of %s, and counted are %v", *counts, label, *r.counts[label])
		}
	}
	return nil
}

func (r *Registry) checkQueues() error {
	for name, q := range map[string]*queue{"expiry": &r.expiry, "charging": &r.charging} {
		for i, item := range q.items {
			if *q.index(item.e) != i || r.entries[item.e.name] != item.e {
				return fmt.Errorf("%s: %s is at %d, and not there or thinks to be at %d", name, item.e.name, i, *q.index(item.e))
			}
			if i > 0 && item.at.Before(q.items[(i-1)/2].at) {
				return fmt.Errorf("%s: %s is in front of one that is before it", name, item.e.name)
			}
		}
	}
	for _, e := range r.entries {
		want, have := e.end(), time.Time{}
		if e.state == Terminating {
			want = e.retryAt
		}
		if e.expiryAt >= 0 {
			have = r.expiry.items[e.expiryAt].at
		}
		if !want.Equal(have) {
			return fmt.Errorf("%s, %s, is to be looked at %v, and the queue has %v", e.name, e.state, want, have)
		}
	}
	return nil
}

func (r *Registry) checkRest() error {
	for p := range r.retired {
		if r.onProv[p] == nil {
			return fmt.Errorf("%v has nothing left and is retiring still", p)
		}
	}
	if len(r.tombstones.byID) != len(r.tombstones.order) {
		return fmt.Errorf("there are %d tombstones, and %d in order", len(r.tombstones.byID), len(r.tombstones.order))
	}
	return nil
}

// Force makes a transition with an event that no method may have.
func (e *Entry) Force(event Event) error {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	return e.registry.transition(e, event)
}
