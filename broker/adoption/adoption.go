// Package adoption has this broker go on with what others had that died: with their instances
// of providers that are bound to no machine, where this broker has a provider of the same label
// with the same account.
//
// Start with Heir.Run, which looks for brokers that died again and again, and Heir.Inherit, for
// somebody who asks and shall not wait for that. Which of several brokers gets what is decided
// by the database (package store/postgres). What is adopted is found at its provider as after a
// start of the broker (package instance/reconcile).
package adoption

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/singleflight"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Directory knows which brokers are dead and what they had, and changes whose that is;
// postgres.Store is it.
type Directory interface {
	// Dead lists the brokers that are dead, DeadOwner those that had what is sought. The
	// numbers tell one death of a broker from its next.
	Dead(ctx context.Context) (deaths map[string]int64, err error)
	DeadOwner(ctx context.Context, what peer.Sought) (deaths map[string]int64, err error)
	// ForsakenOf lists what others may go on with of a dead broker: all of the sessions in
	// which something is that is sought, or of all where nothing is.
	ForsakenOf(ctx context.Context, dead string, what peer.Sought) ([]postgres.Forsaken, error)
	// Adopt makes some of it this broker's and returns the records. What else the dead one had
	// of their sessions is forgotten. After an error some may be this broker's all the same:
	// Adopted lists all that are.
	Adopt(ctx context.Context, dead string, from []postgres.Forsaken) (records [][]byte, err error)
	Adopted(ctx context.Context) (records [][]byte, err error)
}

// Instances go on with what was adopted; instance.Successor does.
type Instances interface {
	TakeOver(records []instance.Record)
	Draining() bool
}

const (
	// lookInterval is how often it is looked for dead brokers.
	lookInterval = time.Second
	// restInterval is how long a dead broker is left alone of whose instances there are none
	// any more that this one can go on with: a list may have been late. It is doubled each time
	// that there are none again, up to mostRest.
	restInterval = 30 * time.Second
	mostRest     = 5 * time.Minute
	// mostRetry bounds how long one is left alone with which something has failed: lookInterval,
	// which is doubled as well.
	mostRetry = 10 * time.Second
	// awaited is how long somebody else is waited for who may go on with what this one cannot go
	// on with, or with a session of which it has not all. awaitInterval lies between looks.
	awaited       = 15 * time.Second
	awaitInterval = 3 * time.Second
	// batch is how many sessions are moved at once. Others that adopt get theirs meanwhile.
	batch = 64
	// listTimeout bounds a list of a provider, and listLife is how long it is as good as new, or
	// its failure.
	listTimeout = 20 * time.Second
	listLife    = 2 * time.Second
	// unclearFor is how long a transaction may be on its way whose outcome nobody has heard.
	unclearFor = time.Minute
)

// Options of an Heir. All are required.
type Options struct {
	Directory Directory
	// Providers are those of the configuration in force.
	Providers func() []instance.Provider
	// Known reports whether there is such a tenant.
	Known  func(tenant string) bool
	Logger hclog.Logger
}

// Heir goes on with what dead brokers had. Its methods may be called concurrently.
type Heir struct {
	o Options

	mu        sync.Mutex
	instances Instances       // nil before Run
	life      context.Context // of Run
	// rests are the dead brokers that are left alone, by their deaths.
	rests map[death]rest
	// seen is when this broker first knew of a death.
	seen   map[death]time.Time
	lists  map[mark]list
	flight singleflight.Group
	// unclear is when no transaction is on its way any more whose outcome nobody has heard; zero
	// where all are known.
	unclear time.Time
}

type death struct {
	broker string
	at     int64
}

// rest is until when a dead broker is left alone, and for how long.
type rest struct {
	until time.Time
	pause time.Duration
}

// mark is what instances of a provider carry.
type mark struct{ label, broker string }

// list is which instances carry a mark, by what the provider calls them.
type list struct {
	at   time.Time
	made map[string]bool
	err  error
}

var _ peer.Heir = (*Heir)(nil)

// New returns an heir that goes on with nothing before Run.
func New(o Options) *Heir {
	return &Heir{o: o, rests: map[death]rest{}, seen: map[death]time.Time{}, lists: map[mark]list{}}
}

// Run goes on with what dead brokers had until ctx ends.
func (h *Heir) Run(ctx context.Context, instances Instances) {
	ctx = origin.With(ctx, origin.Origin{Cause: origin.Reconcile})
	h.mu.Lock()
	h.instances, h.life = instances, ctx
	h.mu.Unlock()
	ticker := time.NewTicker(failpoint.Hasten(lookInterval))
	defer ticker.Stop()
	for told := false; ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := h.look(ctx)
		if err != nil && !told && ctx.Err() == nil {
			h.o.Logger.Warn("what dead brokers had cannot be adopted; it is tried again", "error", err)
		}
		told = err != nil
	}
}

// look goes on with all that there is of brokers that do not rest.
func (h *Heir) look(ctx context.Context) error {
	if h.heirs() == nil {
		return nil
	}
	if err := h.recover(ctx); err != nil {
		return err
	}
	dead, err := h.o.Directory.Dead(ctx)
	if err != nil {
		return err
	}
	h.forget(dead)
	var failed error
	for broker, at := range dead {
		one := death{broker, at}
		if h.resting(one) {
			continue
		}
		switch some, err := h.adopt(ctx, one, peer.Sought{}); {
		case errors.Is(err, peer.ErrAwaited):
			h.rest(one, awaitInterval, awaitInterval)
		case err != nil:
			failed = err // others may be well
			h.rest(one, lookInterval, mostRetry)
		case some:
			h.rest(one, restInterval, restInterval)
		default:
			h.rest(one, restInterval, mostRest)
		}
	}
	return failed
}

// heirs are who goes on with instances; nil while nobody takes new work.
func (h *Heir) heirs() Instances {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.instances == nil || h.instances.Draining() {
		return nil
	}
	return h.instances
}

func (h *Heir) resting(one death) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.rests[one].until)
}

// rest leaves a dead broker alone for twice as long as the last time, within bounds.
func (h *Heir) rest(one death, least, most time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pause := min(max(2*h.rests[one].pause, least), most)
	h.rests[one] = rest{time.Now().Add(failpoint.Hasten(pause)), pause}
}

// forget forgets the deaths that are over, and the lists that nobody needs.
func (h *Heir) forget(dead map[string]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for one := range h.rests {
		if dead[one.broker] != one.at {
			delete(h.rests, one)
		}
	}
	for one := range h.seen {
		if dead[one.broker] != one.at {
			delete(h.seen, one)
		}
	}
	for m := range h.lists {
		if _, is := dead[m.broker]; !is {
			delete(h.lists, m)
		}
	}
}

// waits reports whether somebody else is waited for who may go on with what a dead broker had.
func (h *Heir) waits(one death) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[one].IsZero() {
		h.seen[one] = time.Now()
	}
	return time.Since(h.seen[one]) < failpoint.Hasten(awaited)
}

// Inherit implements peer.Heir.
func (h *Heir) Inherit(ctx context.Context, what peer.Sought) (here bool, err error) {
	dead, err := h.o.Directory.DeadOwner(ctx, what)
	if err != nil {
		return false, err
	}
	ctx = origin.With(ctx, origin.Origin{Cause: origin.Reconcile})
	for broker, at := range dead {
		switch here, err = h.adopt(ctx, death{broker, at}, what); {
		case here:
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}

// adopt goes on with what a dead broker had, or with the sessions of what is sought of it, as far
// as the accounts of this broker have it. The error is ErrAwaited where somebody may yet go on
// with something that was left.
func (h *Heir) adopt(ctx context.Context, one death, what peer.Sought) (some bool, err error) {
	candidates, bound := h.candidates()
	forsaken, err := h.o.Directory.ForsakenOf(ctx, one.broker, what)
	if err != nil {
		return false, err
	}
	forsaken = slices.DeleteFunc(forsaken, func(f postgres.Forsaken) bool {
		tenant, _, _ := strings.Cut(f.ID, ":")
		return !h.o.Known(tenant) || slices.Contains(bound, f.Provider)
	})
	waits, left := h.waits(one), len(forsaken)
	if h.heirs() == nil {
		return false, awaiting(waits && left > 0)
	}
	found, failed := h.found(ctx, one.broker, candidates, forsaken)
	for sessions := range slices.Chunk(whole(forsaken, found, waits), batch) {
		heirs := h.heirs()
		if heirs == nil {
			return some, awaiting(waits && !some)
		}
		records, err := h.o.Directory.Adopt(ctx, one.broker, slices.Concat(sessions...))
		if err != nil {
			h.mu.Lock()
			h.unclear = time.Now().Add(unclearFor)
			h.mu.Unlock()
			return some, err
		}
		if len(records) > 0 {
			h.takeOver(heirs, records)
			some, left = true, left-len(records)
		}
	}
	return some, cmp.Or(failed, awaiting(waits && left > 0))
}

func awaiting(is bool) error {
	if is {
		return peer.ErrAwaited
	}
	return nil
}

// finding is what is known of an instance.
type finding int

const (
	// missing is one that the accounts of this broker do not have, or do not have yet.
	missing finding = iota
	// unknown is one whose account did not answer.
	unknown
	// there is one that can be adopted.
	there
)

// whole are what was found, by sessions: what is adopted of a session is adopted at once, and what
// is not is forgotten. A session of which something may yet be found is left, and one of which
// something is missing is while others are waited for that may have all of it.
func whole(forsaken []postgres.Forsaken, found map[string]finding, waits bool) (sessions [][]postgres.Forsaken) {
	all, left := map[string][]postgres.Forsaken{}, map[string]bool{}
	for _, f := range forsaken {
		session := f.ID[:max(0, strings.LastIndexByte(f.ID, ':'))]
		switch found[f.ID] {
		case there:
			all[session] = append(all[session], f)
		case unknown:
			left[session] = true
		case missing:
			left[session] = left[session] || waits
		}
	}
	for session, of := range all {
		if !left[session] {
			sessions = append(sessions, of)
		}
	}
	return sessions
}

// candidates are the providers whose instances others may have made. Of one that never said
// anything that is not known. The labels are those of the others, whose instances are bound to
// their broker.
func (h *Heir) candidates() (all []instance.Provider, bound []string) {
	for _, p := range h.o.Providers() {
		if d := p.Description(); d.Name == "" || slices.Contains(d.Capabilities, sdk.CapabilityAdoption) {
			all = append(all, p)
		} else {
			bound = append(bound, p.Label())
		}
	}
	return all, bound
}

// found says which of the instances the accounts of this broker have, by their IDs, and writes
// into each the mark by which it was found. The error says why others may be there too.
func (h *Heir) found(ctx context.Context, dead string, candidates []instance.Provider, forsaken []postgres.Forsaken) (found map[string]finding, failed error) {
	found = map[string]finding{}
	for _, p := range candidates {
		// The dead one may have adopted some itself, and what they carry may have been changed.
		marks := map[string][]*postgres.Forsaken{}
		for n := range forsaken {
			f := &forsaken[n]
			if f.Provider != p.Label() {
				continue
			}
			marks[dead] = append(marks[dead], f)
			if f.Carries != "" && f.Carries != dead {
				marks[f.Carries] = append(marks[f.Carries], f)
			}
		}
		for broker, all := range marks {
			made, err := h.carrying(ctx, p, broker)
			if err != nil {
				failed = err
			}
			for _, f := range all {
				switch {
				case found[f.ID] == there: // by more than one mark, where a list is late
				case err != nil:
					found[f.ID] = unknown
				case made[f.Made]:
					found[f.ID], f.Carries = there, broker
				}
			}
		}
	}
	return found, failed
}

// carrying are the instances of a provider that carry the ID of a broker, by what the provider
// calls them. Who asks at the same time gets one list.
func (h *Heir) carrying(ctx context.Context, p instance.Provider, broker string) (map[string]bool, error) {
	m := mark{p.Label(), broker}
	h.mu.Lock()
	last, life := h.lists[m], h.life
	h.mu.Unlock()
	if time.Since(last.at) < failpoint.Hasten(listLife) {
		return last.made, last.err
	}
	if !p.Status().Ready { // and nobody shall wait for it
		return nil, sdk.Errorf(sdk.CodeUnavailable, "provider %q is not ready", p.Label())
	}
	// It goes on for the others when the one gives up who was the first to ask.
	answer := h.flight.DoChan(m.label+" "+m.broker, func() (any, error) {
		listing, cancel := context.WithTimeout(life, listTimeout)
		defer cancel()
		made, err := listOf(listing, p, broker)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lists[m] = list{at: time.Now(), made: made, err: err}
		return made, err
	})
	select {
	case one := <-answer:
		made, _ := one.Val.(map[string]bool)
		return made, one.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func listOf(ctx context.Context, p instance.Provider, broker string) (made map[string]bool, err error) {
	ready, err := p.Provider(ctx)
	if err != nil {
		return nil, err
	}
	adopter, can := ready.(sdk.Adopter)
	if !can || !slices.Contains(p.Description().Capabilities, sdk.CapabilityAdoption) {
		return nil, nil
	}
	listed, err := adopter.ListOf(ctx, broker)
	if err != nil {
		return nil, fmt.Errorf("list the instances of provider %q that a dead broker has made: %w", p.Label(), err)
	}
	made = map[string]bool{}
	for _, i := range listed {
		made[i.ID] = true
	}
	return made, nil
}

// takeOver loads records.
func (h *Heir) takeOver(heirs Instances, texts [][]byte) {
	records := make([]instance.Record, 0, len(texts))
	for _, text := range texts {
		var r instance.Record
		if err := json.Unmarshal(text, &r); err != nil {
			h.o.Logger.Error("an instance was adopted whose record cannot be read", "error", err)
			continue
		}
		records = append(records, r)
	}
	heirs.TakeOver(records)
}

// recover loads what was adopted in transactions of which nobody has heard how they ended, until
// it has once when none of them was on its way any more.
func (h *Heir) recover(ctx context.Context) error {
	h.mu.Lock()
	unclear, heirs := h.unclear, h.instances
	h.mu.Unlock()
	if unclear.IsZero() {
		return nil
	}
	began := time.Now()
	records, err := h.o.Directory.Adopted(ctx)
	if err != nil {
		return err
	}
	h.takeOver(heirs, records)
	h.mu.Lock()
	defer h.mu.Unlock()
	if began.After(h.unclear) {
		h.unclear = time.Time{}
	}
	return nil
}
