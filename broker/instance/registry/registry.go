// Package registry knows which instances there are, whose they are, and in which State
// each of them is. It holds their table of states (state.go): what happens to an
// instance is an Event, and transition refuses what the table does not have.
//
// The registry does no I/O and waits for nothing. It takes its lock inside, and callers
// get snapshots (Instance) or a handle (Entry) whose methods lock. What follows from a
// transition is for its Effects: the owner of the registry destroys, finds out and
// writes down.
//
// No operation looks at all entries: there are indexes by tenant, by session, by
// provider and by the provider's ID, and queues by time for what expires and for what
// is to be charged.
package registry

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
)

// Effects are what follows from transitions. They are called under the registry's lock:
// an implementation starts elsewhere what takes time, and does not call the registry
// before it has returned.
type Effects interface {
	// Terminate has an instance destroyed. Its end is told by Entry.Terminated, a failure
	// by Entry.TerminationFailed.
	Terminate(e *Entry)
	// Pause has an instance paused whose time is over, when its executions have ended. That
	// is told by Entry.EndSwitch, a failure by Entry.EndPauseFailed.
	Pause(e *Entry)
	// NoteUse has it written down that use moves the end of an instance from now on.
	// written is then told whether the journal has taken it, once.
	NoteUse(e *Entry, written func(done bool))
	// Ended is told of an instance that has left the registry, with what the quotas
	// count for it. unrecorded means that the journal is to be told of its end still.
	Ended(t Tombstone, permit *quota.Instance, unrecorded bool)
}

// Registry holds the instances. All its methods may be called concurrently.
type Registry struct {
	effects Effects

	mu       sync.Mutex
	entries  map[string]*Entry // by ID
	byName   map[string]*Entry // by the ID's instance part, which is never used again
	sessions map[SessionKey]*Entry
	work     map[WorkKey][]*Entry
	tenants  map[string][]*Entry // in the order of their IDs
	onProv   map[routing.Provider]*fleet
	left     map[string]map[*Entry]struct{} // those of an earlier process, by label
	sandbox  map[SandboxKey]*Entry

	expiry   queue
	charging queue

	counts     map[string]*[Gone + 1]int // by label
	retired    map[routing.Provider]*retirement
	tombstones tombstones
	watches    map[*Watch]struct{}
}

// fleet is what there is on a provider.
type fleet struct {
	entries map[*Entry]struct{}
	states  [Gone + 1]int // how many are in each
}

// SessionKey names the one instance that a session has on a provider.
type SessionKey struct{ Tenant, Session, Provider string }

// WorkKey names a piece of work: a session, on whichever provider.
type WorkKey struct{ Tenant, Session string }

// SandboxKey names what a provider has, by its own ID.
type SandboxKey struct{ Provider, ID string }

// New returns an empty registry.
func New(effects Effects) *Registry {
	return &Registry{
		effects: effects,
		entries: map[string]*Entry{}, byName: map[string]*Entry{}, sessions: map[SessionKey]*Entry{}, work: map[WorkKey][]*Entry{},
		tenants: map[string][]*Entry{}, onProv: map[routing.Provider]*fleet{}, left: map[string]map[*Entry]struct{}{},
		sandbox:  map[SandboxKey]*Entry{},
		expiry:   newQueue(func(e *Entry) *int { return &e.expiryAt }),
		charging: newQueue(func(e *Entry) *int { return &e.chargeAt }),
		counts:   map[string]*[Gone + 1]int{}, retired: map[routing.Provider]*retirement{},
		watches: map[*Watch]struct{}{},
	}
}

// Watch notes which instances end while it is open. What a provider listed meanwhile may
// have them still.
type Watch struct {
	registry *Registry
	ended    map[string]struct{}
}

// Watch opens one, which its caller closes.
func (r *Registry) Watch() *Watch {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &Watch{registry: r, ended: map[string]struct{}{}}
	r.watches[w] = struct{}{}
	return w
}

// Ended reports whether an instance has ended, by the last part of its ID.
func (w *Watch) Ended(instance string) bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	_, ended := w.ended[instance]
	return ended
}

// Close ends the noting.
func (w *Watch) Close() {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	delete(w.registry.watches, w)
}

// Load takes over the record of an earlier process, or of another broker, with what the
// quotas count for it.
func (r *Registry) Load(left Record, permit *quota.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &Entry{registry: r, left: left, loaded: time.Now(), changed: make(chan struct{}), expiryAt: -1, chargeAt: -1}
	e.id, e.name, e.label, e.permit, e.state = left.ID, left.ID.String(), left.Provider, permit, Unknown
	if left.Ending {
		e.state = Orphaned
	}
	e.sandboxID = left.Made
	r.add(e)
	if left.holdsSession() {
		r.own(e)
	}
}

// Remember adds what an earlier process knew of instances that are no more, and what is
// found out about them.
func (r *Registry) Remember(ended ...Tombstone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range ended {
		r.tombstones.add(t)
	}
}

// add puts an entry into the indexes.
func (r *Registry) add(e *Entry) {
	r.entries[e.name] = e
	r.byName[e.id.Instance] = e
	work := WorkKey{e.id.Tenant, e.id.Session}
	r.work[work] = append(r.work[work], e)
	ofTenant := r.tenants[e.id.Tenant]
	i, _ := slices.BinarySearchFunc(ofTenant, e, byID)
	r.tenants[e.id.Tenant] = slices.Insert(ofTenant, i, e)
	r.place(e)
	r.setSandbox(e, e.sandboxID)
	r.countsOf(e.label)[e.state]++
}

// place puts an entry among those of its provider, or among those that an earlier
// process left.
func (r *Registry) place(e *Entry) {
	if e.state.Left() {
		if r.left[e.label] == nil {
			r.left[e.label] = map[*Entry]struct{}{}
		}
		r.left[e.label][e] = struct{}{}
		return
	}
	r.takeLeft(e)
	if r.onProv[e.provider] == nil {
		r.onProv[e.provider] = &fleet{entries: map[*Entry]struct{}{}}
	}
	r.onProv[e.provider].entries[e] = struct{}{}
	r.onProv[e.provider].states[e.state]++
}

// takeLeft takes an entry out of those that an earlier process left.
func (r *Registry) takeLeft(e *Entry) {
	delete(r.left[e.label], e)
	if len(r.left[e.label]) == 0 {
		delete(r.left, e.label)
	}
}

// setSandbox has the provider's ID stand for an entry, in place of the one that it had.
func (r *Registry) setSandbox(e *Entry, sandboxID string) {
	r.dropSandbox(e)
	e.sandboxID = sandboxID
	if sandboxID != "" {
		r.sandbox[SandboxKey{e.label, sandboxID}] = e
	}
}

func (r *Registry) dropSandbox(e *Entry) {
	if key := (SandboxKey{e.label, e.sandboxID}); r.sandbox[key] == e {
		delete(r.sandbox, key)
	}
}

// holder returns another entry that has the provider's ID; nil if there is none.
func (r *Registry) holder(e *Entry, sandboxID string) *Entry {
	if other := r.sandbox[SandboxKey{e.label, sandboxID}]; other != e {
		return other
	}
	return nil
}

// remove takes an entry out of the indexes.
func (r *Registry) remove(e *Entry) {
	delete(r.entries, e.name)
	delete(r.byName, e.id.Instance)
	for w := range r.watches {
		w.ended[e.id.Instance] = struct{}{}
	}
	r.disown(e)
	work := WorkKey{e.id.Tenant, e.id.Session}
	if i := slices.Index(r.work[work], e); i >= 0 {
		if r.work[work] = slices.Delete(r.work[work], i, i+1); len(r.work[work]) == 0 {
			delete(r.work, work)
		}
	}
	ofTenant := r.tenants[e.id.Tenant]
	if i, found := slices.BinarySearchFunc(ofTenant, e, byID); found {
		if ofTenant = slices.Delete(ofTenant, i, i+1); len(ofTenant) == 0 {
			delete(r.tenants, e.id.Tenant)
		} else {
			r.tenants[e.id.Tenant] = ofTenant
		}
	}
	r.takeLeft(e)
	if fleet := r.onProv[e.provider]; fleet != nil {
		if delete(fleet.entries, e); len(fleet.entries) == 0 {
			delete(r.onProv, e.provider)
		}
	}
	r.dropSandbox(e)
	r.expiry.remove(e)
	r.charging.remove(e)
	if e.provider != nil {
		r.closeIfEmpty(e.provider)
	}
}

// own makes the entry its session's, if that has none on the provider.
func (r *Registry) own(e *Entry) {
	if key := e.sessionKey(); r.sessions[key] == nil {
		r.sessions[key] = e
	}
}

// disown lets the session have another one.
func (r *Registry) disown(e *Entry) {
	if key := e.sessionKey(); r.sessions[key] == e {
		delete(r.sessions, key)
	}
}

func (r *Registry) countsOf(label string) *[Gone + 1]int {
	if r.counts[label] == nil {
		r.counts[label] = new([Gone + 1]int)
	}
	return r.counts[label]
}

// transition is the only place where the state of an entry changes. What the table does
// not have is refused, and changes nothing.
func (r *Registry) transition(e *Entry, event Event) error {
	next, err := Next(e.state, event)
	if err != nil {
		return err
	}
	r.count(e, -1)
	e.state = next
	r.count(e, +1)
	if next == Orphaned || next.Detached() || next >= Draining {
		r.disown(e)
	}
	if next == Gone {
		r.remove(e)
	}
	close(e.changed)
	e.changed = make(chan struct{})
	return nil
}

// count changes how many are in the entry's state. Those that are gone do not count.
func (r *Registry) count(e *Entry, by int) {
	if e.state == Gone {
		return
	}
	r.countsOf(e.label)[e.state] += by
	if fleet := r.onProv[e.provider]; fleet != nil && !e.state.Left() {
		if _, placed := fleet.entries[e]; placed {
			fleet.states[e.state] += by
		}
	}
}

// vanish ends an entry. The reason is for its owner, in place of one that it has; "" keeps
// that.
func (r *Registry) vanish(e *Entry, event Event, reason string) error {
	unclear, terminating := e.state.Unclear(), e.state == Terminating
	if err := r.transition(e, event); err != nil {
		return err
	}
	if unclear {
		e.outcome = Refused
	}
	// The reason why an instance is being destroyed stays, also where a comparison with the
	// provider notices first that it is gone.
	if !terminating || e.reason == "" {
		e.reason = cmp.Or(reason, e.reason)
	}
	unrecorded := !e.buried && e.snapshot().Recorded()
	t := e.tombstone()
	if unrecorded {
		r.tombstones.add(t)
	}
	r.effects.Ended(t, e.permit, unrecorded)
	return nil
}

// ErrMoved means that a request was on its way to a provider that another has
// taken over from, or where what it waited for is not to be. It looks for its way anew.
var ErrMoved = errors.New("the request belongs elsewhere by now")
