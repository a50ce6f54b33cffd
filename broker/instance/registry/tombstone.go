package registry

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds of what is remembered of instances that are no more.
const (
	TombstoneLife = 24 * time.Hour
	MaxTombstones = 10_000
)

// The reasons why an instance ended without its owner's doing.
const (
	ReasonRestart = "the broker was restarted"
	ReasonStop    = "the broker was stopped"
	ReasonExpired = "its time was over"
	ReasonProcess = "the process of its provider ended"
	ReasonLost    = "its provider does not have it any more"
	ReasonRemoved = "its provider was removed"
	ReasonKilled  = "an administrator destroyed it"
)

// Tombstone is what is remembered of an instance that is no more.
type Tombstone struct {
	ID ID        `json:"id"`
	At time.Time `json:"at"`
	// Reason follows "ended at ...: ". Empty if there is nothing to be told.
	Reason string `json:"reason"`
}

// tombstones are those whose owners may ask why.
type tombstones struct {
	byID  map[string]Tombstone
	order []Tombstone // the oldest first
}

func (t *tombstones) add(one Tombstone) {
	if one.Reason == "" {
		return
	}
	if t.byID == nil {
		t.byID = map[string]Tombstone{}
	}
	if _, known := t.byID[one.ID.String()]; known {
		return // two have seen the same end
	}
	t.byID[one.ID.String()] = one
	t.order = append(t.order, one)
	for len(t.order) > MaxTombstones || time.Since(t.order[0].At) > TombstoneLife {
		delete(t.byID, t.order[0].ID.String())
		t.order = t.order[1:]
		if len(t.order) == 0 {
			return
		}
	}
}

// forget drops those about which nobody may ask any more.
func (t *tombstones) forget(of func(Tombstone) bool) {
	kept := t.order[:0:0]
	for _, one := range t.order {
		if of(one) {
			delete(t.byID, one.ID.String())
			continue
		}
		kept = append(kept, one)
	}
	t.order = kept
}

// tombstone is what will be remembered of the entry. The registry is locked.
func (e *Entry) tombstone() Tombstone {
	t := Tombstone{ID: e.id, At: time.Now(), Reason: e.reason}
	if e.OneShot || e.tenantRemoved {
		t.Reason = "" // nobody ever knew of it, or nobody may any more
	}
	return t
}

// absent is the error for an instance that the tenant cannot use. Only the owner
// learns more than about one that never was.
func (r *Registry) absent(tenant, id string) error {
	e := r.entries[id]
	if e != nil && e.state == Unknown && e.id.Tenant == tenant && e.left.Adoptable() {
		return stillUnknown(e.left)
	}
	t, found := r.tombstones.byID[id]
	if e != nil && (e.state == Draining || e.state == Terminating) {
		t = e.tombstone()
		found = t.Reason != ""
	}
	if found && t.ID.Tenant == tenant && time.Since(t.At) <= TombstoneLife {
		return sdk.Errorf(sdk.CodeNotFound, "the instance ended at %s: %s; create a new one if you need one",
			t.At.UTC().Format(time.RFC3339), t.Reason)
	}
	return NoSuchInstance()
}

// NoSuchInstance is the same error for an instance that never existed, has ended or
// belongs to somebody else.
func NoSuchInstance() *sdk.Error {
	return sdk.Errorf(sdk.CodeNotFound, "no such instance; create a new one if you need one")
}

// stillUnknown is the answer as long as nobody knows what became of the instance.
func stillUnknown(r Record) error {
	e := sdk.Errorf(sdk.CodeUnavailable, "the broker was restarted, and provider %q has not said yet whether it still has the instance", r.Provider)
	e.RetryAfter = time.Second
	return e
}
