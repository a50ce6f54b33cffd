package reconcile

import (
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// comparison is one list of a provider beside what the registry expected of it when it
// was asked. meanwhile knows what has ended since. served says that the provider served
// then. Of those in unsettled it proves nothing that they are not listed. reason is why what
// is not listed is no more.
type comparison struct {
	owner     routing.Provider
	expected  map[*registry.Entry]registry.Instance
	meanwhile *registry.Watch
	served    bool
	listed    []sdk.Instance
	reason    string
	asked     time.Time
	unsettled map[*registry.Entry]bool
}

// compare ends entries that are not listed, adopts what an earlier process left,
// and returns the provider's IDs of listed instances that nobody knows, with the tenants
// that they count for as long as they are there. Each entry is looked at as it is now:
// what was listed was in the registry before the provider was asked, or never.
func (r *Reconciler) compare(c comparison) (adopted []registry.Instance, orphans map[string]string) {
	orphans = map[string]string{}
	if r.Registry.Lost(c.owner) || c.served && !r.serves(c.owner) {
		return nil, nil // the list is of no use
	}
	there, strangers := r.strangers(c)
	adopted = r.settleLeft(c, strangers)
	for name, instances := range strangers {
		if _, i := r.Registry.ByName(name); i.State.Left() && i.Label != c.owner.Label() {
			r.Logger.Debug("an instance is left to its own provider", "provider", c.owner.Label(), "owner", i.Label)
			continue
		}
		for _, i := range instances {
			if e, held := r.Registry.ByProvidersID(c.owner.Label(), i.ID); e == nil || held.State.Left() {
				orphans[i.ID] = r.tenantOf(c, name, i)
			} // else it has become somebody's meanwhile
		}
	}
	if r.serves(c.owner) {
		r.forgetOrphans(c.owner, there)
	}
	lost := c.endUnlisted(there)
	if lost > 0 || len(orphans) > 0 || len(adopted) > 0 {
		r.Logger.Info("reconciled", "provider", c.owner.Label(), "lost", lost, "orphans", len(orphans), "adopted", len(adopted))
	}
	return adopted, orphans
}

// strangers returns what is listed, and of that what no entry has, by the instance part
// of its ID, which is never used again. Two providers may share an account, and then list
// what is the other's.
func (r *Reconciler) strangers(c comparison) (there map[string]bool, strangers map[string][]sdk.Instance) {
	there, strangers = map[string]bool{}, map[string][]sdk.Instance{}
	byName, byProvidersID := map[string]registry.Instance{}, map[string]bool{}
	for _, i := range c.expected { // it may have ended since the list was made
		byName[i.ID.Instance], byProvidersID[i.Sandbox.ID] = i, true
	}
	for _, i := range c.listed {
		if there[i.ID] || byProvidersID[i.ID] {
			there[i.ID] = true
			continue // whatever it is called here, it is one session's already
		}
		there[i.ID] = true
		holder, held := r.Registry.ByProvidersID(c.owner.Label(), i.ID)
		if holder != nil && !held.State.Left() {
			continue
		}
		name := held.ID.Instance // whatever has become of its labels
		if holder == nil {
			if name = i.Labels[sdk.LabelInstance]; r.BrokerID != "" && i.Labels[sdk.LabelBroker] != r.BrokerID {
				continue
			}
			if c.meanwhile.Ended(name) {
				continue // made and ended since the provider was asked; the next list tells
			}
		}
		known, expected := byName[name]
		if e, now := r.Registry.ByName(name); e != nil && !expected && !now.State.Left() {
			known, expected = now, true
		}
		if !expected || known.Sandbox.ID != "" && known.Sandbox.ID != i.ID {
			strangers[name] = append(strangers[name], i)
		}
	}
	return there, strangers
}

// settleLeft finds out what became of the records of an earlier process, from a list of
// their provider by instance parts. What is adopted leaves the list. That something is
// gone is only taken from a provider that serves.
func (r *Reconciler) settleLeft(c comparison, listed map[string][]sdk.Instance) (adopted []registry.Instance) {
	owner := c.owner
	now, serves := time.Now(), r.serves(owner)
	mayAdopt := func() bool { return !c.served || slices.Contains(r.Catalog.Providers(), owner) }
	for _, e := range r.Registry.Left(owner.Label()) {
		snapshot := e.Snapshot()
		if snapshot.Loaded.After(c.asked) || c.unsettled[e] {
			continue // the next list tells
		}
		left := snapshot.Left
		found := listed[left.ID.Instance]
		i := pick(left, found)
		if i >= 0 {
			if taken, ok := e.Adopt(owner, found[i], r.Bounds().MaxLifetime, mayAdopt); ok {
				adopted = append(adopted, taken)
				listed[left.ID.Instance] = append(found[:i:i], found[i+1:]...)
				continue
			}
		}
		adoptable := left.Adoptable() && e.Snapshot().State == registry.Unknown
		switch {
		case i < 0 && !serves: // one that is tried may have another account
		case i >= 0, owner.Description().Ephemeral, now.Sub(r.since(left)) >= failpoint.Hasten(ListDelay):
			// A twin alone proves nothing of the one that the record is about, which
			// may be listed later; it is an orphan.
			ended := registry.Tombstone{ID: left.ID, At: r.Began}
			if adoptable {
				ended.Reason = registry.ReasonLost
				if owner.Description().Ephemeral {
					ended.Reason = registry.ReasonRestart
				}
			}
			if len(found) == 0 {
				e.SettleGone(ended)
			} else if permit, ok := e.Settle(ended); ok {
				r.orphaned(owner, found[max(i, 0)].ID, permit, adoptable, ended)
			}
		}
	}
	return adopted
}

// since is when a list must have had what an earlier process left at the latest, but
// for its delay. A creation that was not acknowledged may have gone on until that
// process died.
func (r *Reconciler) since(left registry.Record) time.Time {
	if left.Made != "" {
		return left.Created
	}
	return r.Began
}

// pick returns the index of the record's instance among those that carry its
// label, less than 0 if it is not there.
func pick(left registry.Record, found []sdk.Instance) int {
	for i := range found {
		if left.Made == "" || found[i].ID == left.Made {
			return i
		}
	}
	return -1
}

// endUnlisted loses the entries that the provider does not have, but for those so
// young that its list may only be late.
func (c comparison) endUnlisted(there map[string]bool) (lost int) {
	patience := failpoint.Hasten(ListDelay)
	if c.owner.Description().Ephemeral {
		patience = 0
	}
	now := time.Now()
	for e, i := range c.expected {
		if !there[i.Sandbox.ID] && !c.unsettled[e] && now.Sub(i.Created) >= patience && e.Lose(c.reason) {
			lost++
		}
	}
	return lost
}

// giveUp drops the records that nobody will ever answer for, because their provider
// is not configured any more: their instances have ended by themselves, with an earlier
// broker if they were its processes'.
func (r *Reconciler) giveUp() {
	configured := map[string]bool{}
	for _, p := range r.Catalog.Providers() {
		configured[p.Label()] = true
	}
	bounds := r.Bounds()
	for _, e := range r.Registry.Left("") {
		left := e.Snapshot().Left
		ended := registry.Tombstone{ID: left.ID, At: time.Now(), Reason: registry.ReasonExpired}
		switch {
		case time.Since(left.Intended) > bounds.MaxLifetime+bounds.Slack:
		case left.Ephemeral && !configured[left.Provider]:
			ended.At, ended.Reason = r.Began, registry.ReasonRestart
		default:
			continue
		}
		e.SettleGone(ended)
	}
}
