package nemesis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/model"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	// sessionsAtOnce are worked in at once, each by sessionWorkers; likewise frugal tenants.
	sessionsAtOnce, sessionWorkers = 4, 3
	frugalsAtOnce, frugalWorkers   = 2, 4
	keyWorkers                     = 3
	// leakBound is how long after all is well something may be left over.
	leakBound = 30 * time.Second
)

// round is some faults under load, after which all is well again and is checked.
type round struct {
	fleet  *fleet
	number int
	// first is the number of the first effect of the cloud in it.
	first int

	// takeovers are sessions that began anew elsewhere, since their owners counted as dead.
	takeovers int

	mu       sync.Mutex
	sessions []*subject
	frugal   []*subject
	keys     []*keyed
	// outcomes counts operations by kind and outcome.
	outcomes map[model.Kind]map[model.Outcome]int
}

func (f *fleet) newRound(number int) *round {
	return &round{fleet: f, number: number, first: len(f.cloud.Effects()), outcomes: map[model.Kind]map[model.Outcome]int{}}
}

// told counts an operation.
func (r *round) told(o model.Operation, _ answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes[o.Kind] == nil {
		r.outcomes[o.Kind] = map[model.Outcome]int{}
	}
	r.outcomes[o.Kind][o.Outcome]++
}

// work has clients work until ctx ends.
func (r *round) work(ctx context.Context, seed uint64) {
	var group sync.WaitGroup
	number := 0
	next := func() *worker {
		number++
		return &worker{fleet: r.fleet, number: number, round: r, random: rand.New(rand.NewPCG(seed, uint64(1_000_000+r.number*1000+number)))}
	}
	crowd := func(count int, begin func() *subject, do func(*worker, *subject)) {
		var workers []*worker
		for range count {
			workers = append(workers, next())
		}
		group.Go(func() {
			for s := begin(); ctx.Err() == nil && s != nil; s = begin() {
				var together sync.WaitGroup
				for _, w := range workers {
					together.Go(func() { do(w, s) })
				}
				together.Wait()
			}
		})
	}
	for range sessionsAtOnce {
		crowd(sessionWorkers, r.newSession, func(w *worker, s *subject) { w.inSession(ctx, s) })
	}
	for range frugalsAtOnce {
		crowd(frugalWorkers, r.newFrugal, func(w *worker, s *subject) { w.asFrugal(ctx, s) })
	}
	for range keyWorkers {
		w := next()
		group.Go(func() {
			for ctx.Err() == nil {
				k := w.newKey()
				r.mu.Lock()
				r.keys = append(r.keys, k)
				r.mu.Unlock()
				w.withKey(ctx, k)
			}
		})
	}
	group.Wait()
}

func (r *round) newSession() *subject {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &subject{name: fmt.Sprintf("s-%d-%d", r.number, len(r.sessions))}
	r.sessions = append(r.sessions, s)
	return s
}

// newFrugal returns nil when all frugal tenants have had their turn in this round.
func (r *round) newFrugal() *subject {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.frugal) == frugals {
		return nil
	}
	s := &subject{name: frugal(len(r.frugal))}
	r.frugal = append(r.frugal, s)
	return s
}

// listed are the IDs of what the brokers say that there is.
func (f *fleet) listed() (map[string]bool, error) {
	all := map[string]bool{}
	for _, b := range f.brokers {
		for _, tenant := range tenants() {
			for after := ""; ; {
				path := pathInstances
				if after != "" {
					path += "?after=" + after
				}
				a := f.ask(b, http.MethodGet, path, tenant, nil, "")
				var list client.InstanceList
				if a.err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &list) != nil {
					return nil, fmt.Errorf("list of %s: %w %s", b.name, a.err, a.body)
				}
				for _, i := range list.Instances {
					all[i.ID] = true
				}
				if after = list.Next; after == "" {
					break
				}
			}
		}
	}
	return all, nil
}

// there are the IDs of what the cloud has.
func (f *fleet) there() map[string]bool {
	all := map[string]bool{}
	for _, i := range f.cloud.Alive() {
		all[idOf(i.Labels)] = true
	}
	return all
}

// idOf is the ID of an instance by the labels that the cloud keeps with it.
func idOf(labels map[string]string) string {
	return labels[sdk.LabelTenant] + ":" + labels[sdk.LabelSession] + ":" + labels[sdk.LabelInstance]
}

// settle waits until the brokers and the cloud say the same, and returns what there is.
func (f *fleet) settle() map[string]bool {
	f.t.Helper()
	var there map[string]bool
	poll.WaitOn(f.t, func(poll.LogT) poll.Result {
		there = f.there()
		listed, err := f.listed()
		if err != nil {
			return poll.Continue("%v", err)
		}
		if left, lost := without(there, listed), without(listed, there); len(left)+len(lost) > 0 {
			return poll.Continue("left over in the cloud: %v; lost there: %v", left, lost)
		}
		return poll.Success()
	}, poll.WithTimeout(leakBound), poll.WithDelay(100*time.Millisecond))
	return there
}

// without lists what one set has and another has not.
func without(a, b map[string]bool) (only []string) {
	for id := range a {
		if !b[id] {
			only = append(only, id)
		}
	}
	slices.Sort(only)
	return only
}

// end asks once more for everything when all is well, then ends it.
func (r *round) end(seed uint64, found *findings) {
	f := r.fleet
	f.t.Helper()
	f.waitReady()
	f.settle()
	random := rand.New(rand.NewPCG(seed, uint64(2_000_000+r.number)))
	for _, s := range r.sessions {
		w := &worker{fleet: f, number: 900, round: r, random: random}
		made := w.create(s, w.any())
		found.expectDone(made, "asked for the session %s when all was well", s.name)
		for _, b := range f.brokers {
			found.expectDone(w.look(s, b, made.ID), "looked at the instance of session %s through %s when all was well", s.name, b.name)
		}
	}
	w := &worker{fleet: f, number: 900, round: r, random: random}
	told := map[string]bool{} // what must be there
	for _, k := range r.keys {
		for _, b := range []*broker{w.any(), w.any()} {
			o := w.do(&k.subject, model.Operation{Kind: model.Ask}, b, http.MethodPost, k.path, ofKeys, k.body, k.name)
			if k.path == pathInstances {
				found.expectDone(o, "asked with the key %s of a creation when all was well", k.name)
			}
		}
		for _, o := range k.history {
			if o.ID != "" {
				told[o.ID] = true
			}
		}
	}
	for _, s := range r.frugal {
		asked := map[string]bool{}
		for _, o := range s.history {
			if o.Kind == model.Destroy {
				asked[o.ID] = true
			}
		}
		for _, id := range s.known {
			if !asked[id] {
				told[id] = true
			}
		}
	}
	there := f.settle()
	for _, id := range without(told, there) {
		found.add("lost: %s, whose end nobody asked for", id)
	}
	for _, id := range without(there, told) {
		if strings.HasPrefix(id, ofKeys+":") {
			found.add("doubled or left over: %s, which no key was answered with", id)
		}
	}
	bySession := map[string]*subject{}
	for _, s := range r.sessions {
		bySession[s.name] = s
	}
	for id := range there {
		tenant, rest, _ := strings.Cut(id, ":")
		session, _, _ := strings.Cut(rest, ":")
		s := bySession[session]
		if tenant != ofSessions || s == nil {
			s = &subject{} // nobody asks for its history any more
		}
		found.expectDone(w.destroy(s, w.any(), tenant, id), "ended %s when all was well", id)
	}
	poll.WaitOn(f.t, func(poll.LogT) poll.Result {
		if left := f.there(); len(left) > 0 {
			return poll.Continue("left over: %v", left)
		}
		return poll.Success()
	}, poll.WithTimeout(leakBound), poll.WithDelay(50*time.Millisecond))
}

// play is a whole round.
func (f *fleet) play(n *nemesis, seed uint64, number, faults int, calm bool) *round {
	f.t.Helper()
	r := f.newRound(number)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.work(ctx, seed)
	}()
	defer func() {
		stop()
		<-done
	}()
	n.rage(seed, number, faults, calm)
	f.waitReady()
	stop()
	<-done
	var found findings
	r.end(seed, &found)
	r.check(&found)
	if len(found) > 0 {
		f.t.Errorf("round %d: %s", number, found)
	}
	return r
}
