package registry_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// provider is one that nobody calls.
type provider struct {
	label     string
	ephemeral bool
}

func (p *provider) Label() string  { return p.label }
func (p *provider) Plugin() string { return p.label }
func (p *provider) Description() sdk.Description {
	return sdk.Description{Name: p.label, Ephemeral: p.ephemeral}
}

func (p *provider) Provider(context.Context) (sdk.Provider, error) {
	return nil, sdk.Errorf(sdk.CodeUnavailable, "nobody is there")
}
func (p *provider) Status() routing.Status { return routing.Status{Ready: true} }

// effects takes down what the registry has asked for.
type effects struct {
	mu         sync.Mutex
	terminated []*registry.Entry
	paused     []*registry.Entry
	notes      []func(done bool)
	ended      []ended
}

type ended struct {
	registry.Tombstone
	permit     *quota.Instance
	unrecorded bool
}

func (f *effects) Terminate(e *registry.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.terminated = append(f.terminated, e)
}

func (f *effects) Pause(e *registry.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = append(f.paused, e)
}

func (f *effects) NoteUse(_ *registry.Entry, written func(done bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, written)
}

func (f *effects) Ended(t registry.Tombstone, permit *quota.Instance, unrecorded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, ended{t, permit, unrecorded})
}

// maxLifetime of the instances of these tests.
const maxLifetime = time.Hour

// fixture is a registry with one provider that it makes instances on.
type fixture struct {
	*registry.Registry
	t        *testing.T
	effects  *effects
	provider *provider
	n        int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, effects: &effects{}, provider: &provider{label: "cloud"}}
	f.Registry = registry.New(f.effects)
	t.Cleanup(func() { assert.Check(t, f.Check()) })
	return f
}

func (f *fixture) id(tenant, session string) registry.ID {
	f.n++
	return registry.ID{Tenant: tenant, Session: session, Instance: fmt.Sprintf("%08d", f.n)}
}

// claimOf is a Claim that nothing refuses.
func claimOf(id registry.ID, p routing.Provider) registry.Claim {
	return registry.Claim{
		ID: id, Provider: p,
		Guard: func() error { return nil }, Offered: func() bool { return true }, New: func() error { return nil },
		Matches: func(registry.Spec) error { return nil },
		Spec:    registry.Spec{Template: "python", TTL: time.Minute, Idle: 10 * time.Minute, Claimed: true, Intended: time.Now()},
	}
}

// pending returns an instance of session s of tenant t, whose maker waits.
func (f *fixture) pending() *registry.Entry { return f.pendingOf("t", "s") }

func (f *fixture) pendingOf(tenant, session string) *registry.Entry {
	f.t.Helper()
	claimed, err := f.Claim(claimOf(f.id(tenant, session), f.provider))
	assert.NilError(f.t, err)
	assert.Assert(f.t, claimed.Begun)
	return claimed.Entry
}

// recording is pending that the provider has made.
func (f *fixture) recording() *registry.Entry { return f.made(f.pending()) }

func (f *fixture) made(e *registry.Entry) *registry.Entry {
	f.t.Helper()
	_, err := e.Made(sdk.Instance{ID: "box-" + e.ID().Instance}, maxLifetime)
	assert.NilError(f.t, err)
	return e
}

// ambiguous is pending that failed, nobody knows how.
func (f *fixture) ambiguous() *registry.Entry {
	e := f.pending()
	e.Created(registry.Uncertain, errLost, nil)
	return e
}

var errLost = sdk.Errorf(sdk.CodeUnavailable, "the answer is lost")

// running is an instance that nobody uses.
func (f *fixture) running() *registry.Entry { return f.runningOf("t", "s") }

func (f *fixture) runningOf(tenant, session string) *registry.Entry {
	f.t.Helper()
	e := f.made(f.pendingOf(tenant, session))
	assert.Equal(f.t, e.Created(registry.Ours, nil, nil).State, registry.Running)
	e.StopWaiting(false)
	return e
}

// left is what an earlier process left of session s of tenant t.
func (f *fixture) left(change func(*registry.Record)) *registry.Entry {
	f.t.Helper()
	id := f.id("t", "s")
	now := time.Now()
	r := registry.Record{
		ID: id, Provider: f.provider.label, Template: "python", TTL: time.Minute, Idle: 10 * time.Minute, Intended: now, Claimed: true,
		Made: "box-" + id.Instance, Created: now, Expires: now.Add(time.Minute), Deadline: now.Add(maxLifetime),
	}
	if change != nil {
		change(&r)
	}
	f.Load(r, nil)
	e, _ := f.ByName(id.Instance)
	assert.Assert(f.t, e != nil)
	return e
}

// in returns an instance in a state; nil for Gone.
func (f *fixture) in(state registry.State) *registry.Entry {
	f.t.Helper()
	var e *registry.Entry
	switch state {
	case registry.Unknown:
		e = f.left(nil)
	case registry.Orphaned:
		e = f.left(func(r *registry.Record) { r.Ending = true })
	case registry.Pending:
		e = f.pending()
	case registry.PendingDetached:
		e = f.pending()
		assert.Assert(f.t, e.Detach())
	case registry.Ambiguous:
		e = f.ambiguous()
	case registry.AmbiguousDetached:
		e = f.ambiguous()
		assert.Assert(f.t, e.Detach())
	case registry.Recording:
		e = f.recording()
	case registry.RecordingDetached:
		e = f.made(f.in(registry.PendingDetached))
	case registry.Running:
		e = f.running()
	case registry.Pausing, registry.Paused:
		e = f.running()
		assert.NilError(f.t, e.BeginSwitch(true))
		if state == registry.Paused {
			e.EndSwitch(true)
		}
	case registry.Resuming:
		e = f.in(registry.Paused)
		assert.NilError(f.t, e.BeginSwitch(false))
	case registry.Draining:
		e = f.running()
		_, err := f.Hold("t", e.ID().String())
		assert.NilError(f.t, err)
		e.Discard(false)
	case registry.Terminating:
		e = f.running()
		_, _, err := f.Destroy("t", e.ID().String(), "", "")
		assert.NilError(f.t, err)
	case registry.Gone:
		e = f.running()
		assert.Assert(f.t, e.Lose(registry.ReasonLost))
	}
	assert.Equal(f.t, e.Snapshot().State, state)
	return e
}

func names(list []registry.Instance) (ids []string) {
	for _, i := range list {
		ids = append(ids, i.ID.String())
	}
	return ids
}

// forEachState runs a test with an instance in each state.
func forEachState(t *testing.T, test func(t *testing.T, f *fixture, state registry.State, e *registry.Entry)) {
	t.Helper()
	for _, state := range allStates() {
		t.Run(state.String(), func(t *testing.T) {
			f := newFixture(t)
			test(t, f, state, f.in(state))
		})
	}
}

func TestEveryStateIsReachedThroughTheMethods(t *testing.T) {
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, e *registry.Entry) {
		assert.NilError(t, f.Check())
		counts := f.Counts()["cloud"]
		found, _ := f.ByName(e.ID().Instance)
		if state == registry.Gone {
			assert.Equal(t, len(counts), 0)
			assert.Assert(t, found == nil)
			return
		}
		assert.DeepEqual(t, counts, map[registry.State]int{state: 1})
		assert.Assert(t, found == e)
	})
}

func TestWhatTheRegistryRefusesChangesNothing(t *testing.T) {
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, e *registry.Entry) {
		before := e.Snapshot()
		for _, event := range allEvents() {
			next, err := registry.Next(state, event)
			if err == nil {
				continue
			}
			assert.Equal(t, next, state)
			assert.ErrorType(t, e.Force(event), &registry.IllegalTransition{})
			after := e.Snapshot()
			assert.Equal(t, after.State, before.State, event.String())
			assert.Assert(t, after.Changed == before.Changed, "%s: those who wait are not woken", event)
			assert.NilError(t, f.Check(), event.String())
		}
	})
}

func TestTheTableOfStates(t *testing.T) {
	reached := map[registry.State]bool{registry.Unknown: true, registry.Orphaned: true, registry.Pending: true}
	used := map[registry.Event]bool{}
	for _, state := range allStates() {
		assert.Check(t, state.String() != "", int(state))
		for _, event := range allEvents() {
			next, err := registry.Next(state, event)
			if err != nil {
				assert.Check(t, next == state)
				continue
			}
			reached[next], used[event] = true, true
			assert.Check(t, state != registry.Gone, "gone is final: %s", event)
			assert.Check(t, !state.Decided() || next.Decided(), "%s, %s: the end of a creation is not taken back", state, event)
			assert.Check(t, state < registry.Draining || next >= registry.Draining, "%s, %s: nothing comes back", state, event)
		}
		_, err := registry.Next(state, registry.Vanished)
		assert.Check(t, state == registry.Gone || err == nil, "%s may vanish", state)
	}
	assert.Check(t, len(reached) == len(allStates()), "every state is reached: %v", reached)
	for _, event := range allEvents() {
		assert.Check(t, used[event] && event.String() != "", int(event))
	}
	_, err := registry.Next(registry.Gone, registry.Made)
	assert.Error(t, err, `an instance that is gone cannot take the event "made"`)
	assert.Check(t, slices.Index(allStates(), registry.Gone) == len(allStates())-1)
}

// always is for an owner that serves.
func always() bool { return true }
