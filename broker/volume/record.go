package volume

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// State is what is known of a volume.
type State string

// The states.
const (
	Making State = "making" // its provider is being asked for it
	Ready  State = "ready"
	// Removing lasts until the provider has confirmed; the name is free from then on.
	Removing State = "removing"
	// Removed is remembered for a while: a creation that was given up may have come late.
	Removed State = "removed"
)

// Record is what the state file has of a volume.
type Record struct {
	// ID is the broker's own name for it, and the key of its creation at the provider.
	ID       string `json:"id"`
	Tenant   string `json:"tenant"`
	Name     string `json:"name"`
	Provider string `json:"provider"` // by label
	State    State  `json:"state"`
	// VolumeID is the provider's name for it, empty until it has answered.
	VolumeID string `json:"volume_id,omitempty"`
	Size     int64  `json:"size"`
	// From is the name of the volume that it is a copy of, and FromID the provider's name
	// for that.
	From   string `json:"from,omitempty"`
	FromID string `json:"from_id,omitempty"`
	// Key is the caller's own name for the creation.
	Key       string    `json:"key,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Ownerless says that its tenant was removed.
	Ownerless bool `json:"ownerless,omitempty"`
}

// Counts reports whether it takes room of its tenant's quota.
func (r Record) Counts() bool { return r.State != Removed && !r.Ownerless }

// named reports whether a tenant finds it by that name.
func (r Record) named(tenant, name string) bool {
	return r.Tenant == tenant && r.Name == name && !r.Ownerless && (r.State == Making || r.State == Ready)
}

// Journal keeps records.
type Journal interface {
	Load() ([]Record, error)
	Write(ctx context.Context, r Record) error
	Forget(ctx context.Context, id string) error
}

// StoreJournal keeps records in the state file.
type StoreJournal struct{ store store.State }

// NewStoreJournal returns the journal of a state file.
func NewStoreJournal(s store.State) StoreJournal { return StoreJournal{s} }

// Load returns all records. The error is that of the first one that cannot be read: to go
// on without one would make its data nobody's.
func (j StoreJournal) Load() (all []Record, err error) {
	err = j.store.View(func(tx store.Tx) error {
		all = nil
		return store.Each(tx, store.Volumes, func(_ string, r Record, err error) error {
			all = append(all, r)
			return err
		})
	})
	return all, err
}

// Write writes a record.
func (j StoreJournal) Write(ctx context.Context, r Record) error {
	return j.store.Update(ctx, func(tx store.Tx) error { return store.Put(tx, store.Volumes, r.ID, r) })
}

// Forget removes a record.
func (j StoreJournal) Forget(ctx context.Context, id string) error {
	return j.store.Update(ctx, func(tx store.Tx) error { return store.Delete(tx, store.Volumes, id) })
}
