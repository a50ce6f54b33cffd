package registry

import (
	"maps"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// ID names an instance: {tenant}:{session}:{instance}. No part holds a colon.
type ID struct {
	Tenant string
	// Session is the tenant's own name for a piece of work.
	Session string
	// Instance is opaque and of fixed length, so that no ID is a prefix of
	// another: runsc and Docker resolve IDs by unique prefix.
	Instance string
}

// String returns the ID as it appears in the API and in logs.
func (id ID) String() string { return id.Tenant + ":" + id.Session + ":" + id.Instance }

// Record is what has to be known of an instance when this process is no more. It
// is written before the provider is asked for the instance, and again when the
// provider has made it. Of an instance that is made for one execution only the intent
// is written, and nothing if it ends with the process of its provider. It holds no
// secrets: what the creator put into the environment is not in it.
type Record struct {
	ID       ID     `json:"id"`
	Provider string `json:"provider"` // by label
	Template string `json:"template,omitempty"`
	// Image is what the template was built to, where it is one of the operator.
	Image  string            `json:"image,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	TTL    time.Duration     `json:"ttl"`
	Idle   time.Duration     `json:"idle"`
	// Ephemeral says that it ends with the process of its provider, and so with that of
	// the broker.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Intended is when the provider was about to be asked.
	Intended time.Time `json:"intended"`
	// Claimed means that its owner can ask for it without knowing its ID.
	Claimed bool `json:"claimed,omitempty"`
	// OneShot means that it is made for one execution: nobody asks for it again.
	OneShot bool `json:"one_shot,omitempty"`
	// Fixed means that no use moves its end, and that nothing that goes on in it does.
	Fixed bool `json:"fixed,omitempty"`
	// PauseAtEnd means that it is paused when its time is over, and kept until Deadline.
	PauseAtEnd bool `json:"pause_at_end,omitempty"`
	// FrontDoor names the front door that it was made by; empty for the broker's own API.
	// Note is what that has to know of it, and says nothing to anybody else.
	FrontDoor string `json:"front_door,omitempty"`
	Note      string `json:"note,omitempty"`
	// From is what it goes on from: the ID of a snapshot, or of an instance that it is a
	// fork of.
	From string `json:"from,omitempty"`
	// Fork is the snapshot behind the fork that it is a copy of, by the broker's ID; empty for
	// none. Until all copies are made, it is known by that which of them belong together.
	Fork string `json:"fork,omitempty"`
	// Volumes that it has, or is to have.
	Volumes []Volume `json:"volumes,omitempty"`
	// Network is what its creation asked for; nil for what its tenant has.
	Network *network.Request `json:"network,omitempty"`
	// Routing is why it is on its provider.
	Routing routing.Placement `json:"routing,omitzero"`

	// Made is the provider's own ID; empty as long as it has not answered. What
	// follows is not set before.
	Made     string            `json:"made,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created,omitzero"`
	Expires  time.Time         `json:"expires,omitzero"`
	Deadline time.Time         `json:"deadline,omitzero"`
	// Used means that it was used since: nobody knows until when, and so how far
	// its end was moved.
	Used   bool `json:"used,omitempty"`
	Paused bool `json:"paused,omitempty"`
	// Released means that it certainly is paused and holds no memory: it counts among the paused
	// instances of its tenant.
	Released bool `json:"released,omitempty"`
	// Contexts are the provider's IDs of the default contexts, by language. Of one that goes
	// on from a snapshot they are known before it is made.
	Contexts map[string]string `json:"contexts,omitempty"`
	// Carries is the ID of the broker that the provider's instance carries, or has carried,
	// where another broker has made it; empty for this one.
	Carries string `json:"carries,omitempty"`
	// Ending means that it was given up, and that its destruction did not work or that
	// its session got another one before it was confirmed.
	Ending bool `json:"ending,omitempty"`
}

// Volume is one that an instance has.
type Volume struct {
	// Name is its tenant's for it, ID that of the provider.
	Name     string `json:"name"`
	ID       string `json:"id"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// HasVolume reports whether an instance of a provider has a volume, or may have it: also
// one that is being made or destroyed.
func (r *Registry) HasVolume(label, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		has := func(v Volume) bool { return v.ID == id }
		if e.label == label && (slices.ContainsFunc(e.Volumes, has) || slices.ContainsFunc(e.left.Volumes, has)) {
			return true
		}
	}
	return false
}

// Adoptable reports whether somebody may still ask for the instance. One that was
// never acknowledged is found only by its session or by its creator's key.
func (r Record) Adoptable() bool {
	return !r.Ending && !r.OneShot && (r.Made != "" || r.Claimed)
}

// holdsSession reports whether the session waits until it is known what became of the
// instance: somebody may ask for it, or what it ran for may still run.
func (r Record) holdsSession() bool { return r.Adoptable() || r.OneShot && r.Claimed && !r.Ending }

// Record is what the journal keeps of an instance.
func (i Instance) Record() Record {
	r := Record{
		Ephemeral: i.Provider.Description().Ephemeral,
		ID:        i.ID, Provider: i.Label, Template: i.Template, Image: i.Image, Labels: maps.Clone(i.Labels),
		TTL: i.TTL, Idle: i.Idle, Claimed: i.Claimed, OneShot: i.OneShot, Fixed: i.Fixed, PauseAtEnd: i.PauseAtEnd,
		FrontDoor: i.FrontDoor, Note: i.Note, From: i.From, Fork: i.Fork, Carries: i.Carries, Volumes: i.Volumes, Network: i.Network, Contexts: i.Contexts,
		Intended: i.Intended, Made: i.Sandbox.ID, Routing: i.Routing, Ending: i.State.Detached(),
	}
	if r.Made != "" {
		r.Metadata, r.Used, r.Paused = maps.Clone(i.Sandbox.Metadata), i.UseNoted, i.State.MayBePaused()
		r.Released = r.Paused && i.Permit.Paused()
		r.Created, r.Expires, r.Deadline = i.Created, i.Expires, i.Deadline
	}
	return r
}

// Recorded reports whether the journal keeps the instance. One that is made for one
// execution, by a process that takes it along when it ends, it does not: nobody can ask
// for it after a crash. In a cloud it is there then, listed or not yet, and has to count.
func (i Instance) Recorded() bool { return !i.OneShot || !i.Provider.Description().Ephemeral }

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
	ReasonNoPause = "its time was over, and it could not be paused"
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
