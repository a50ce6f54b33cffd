package registry

import (
	"errors"
	"slices"
	"sync"

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
	// NoteUse has it written down that use moves the end of an instance from now on, and
	// then calls Entry.UseWritten.
	NoteUse(e *Entry)
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
	onProv   map[routing.Provider]map[*Entry]struct{}
	left     map[string]map[*Entry]struct{} // those of an earlier process, by label
	sandbox  map[SandboxKey]*Entry

	expiry   queue
	charging queue

	counts     map[string]*[Gone + 1]int // by label
	retired    map[routing.Provider]*retirement
	tombstones tombstones
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
		tenants: map[string][]*Entry{}, onProv: map[routing.Provider]map[*Entry]struct{}{}, left: map[string]map[*Entry]struct{}{},
		sandbox:  map[SandboxKey]*Entry{},
		expiry:   newQueue(func(e *Entry) *int { return &e.expiryAt }),
		charging: newQueue(func(e *Entry) *int { return &e.chargeAt }),
		counts:   map[string]*[Gone + 1]int{}, retired: map[routing.Provider]*retirement{},
	}
}

// Load takes over the record of an earlier process, with what the quotas count for it.
// It is called before anything else.
func (r *Registry) Load(left Record, permit *quota.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &Entry{registry: r, left: left, changed: make(chan struct{}), expiryAt: -1, chargeAt: -1}
	e.id, e.label, e.permit, e.state = left.ID, left.Provider, permit, Unknown
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
	r.entries[e.id.String()] = e
	r.byName[e.id.Instance] = e
	work := WorkKey{e.id.Tenant, e.id.Session}
	r.work[work] = append(r.work[work], e)
	ofTenant := r.tenants[e.id.Tenant]
	i, _ := slices.BinarySearchFunc(ofTenant, e, byID)
	r.tenants[e.id.Tenant] = slices.Insert(ofTenant, i, e)
	r.place(e)
	if e.sandboxID != "" {
		r.sandbox[SandboxKey{e.label, e.sandboxID}] = e
	}
	r.countsOf(e.label)[e.state]++
}

// place puts an entry among those of its provider, or among those that an earlier
// process left.
func (r *Registry) place(e *Entry) {
	if e.state.Left() {
		put(r.left, e.label, e)
		return
	}
	take(r.left, e.label, e)
	put(r.onProv, e.provider, e)
}

func put[K comparable](index map[K]map[*Entry]struct{}, key K, e *Entry) {
	if index[key] == nil {
		index[key] = map[*Entry]struct{}{}
	}
	index[key][e] = struct{}{}
}

func take[K comparable](index map[K]map[*Entry]struct{}, key K, e *Entry) {
	delete(index[key], e)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// remove takes an entry out of the indexes.
func (r *Registry) remove(e *Entry) {
	delete(r.entries, e.id.String())
	delete(r.byName, e.id.Instance)
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
	take(r.left, e.label, e)
	if e.provider != nil {
		take(r.onProv, e.provider, e)
	}
	if key := (SandboxKey{e.label, e.sandboxID}); r.sandbox[key] == e {
		delete(r.sandbox, key)
	}
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
	counts := r.countsOf(e.label)
	counts[e.state]--
	if next != Gone {
		counts[next]++
	}
	e.state = next
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

// vanish ends an entry, with the reason for its owner if it has none yet.
func (r *Registry) vanish(e *Entry, event Event, reason string) error {
	if e.state.Unclear() {
		e.outcome = Refused
	}
	if reason != "" {
		e.reason = reason
	}
	if err := r.transition(e, event); err != nil {
		return err
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
