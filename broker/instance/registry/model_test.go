package registry_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var firstSeed = flag.Uint64("seed", 1, "the first seed of the tests that compare the registry with a model")

// steps that the tests with a model make in all.
const steps = 1_000_000

// forEachSeed runs a test in a bubble of its own, so that time is the test's.
func forEachSeed(t *testing.T, seeds uint64, test func(t *testing.T, seed uint64, steps int)) {
	n := steps / int(seeds)
	if testing.Short() {
		n /= 10
	}
	for seed := *firstSeed; seed < *firstSeed+seeds; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, seed, n) })
		})
	}
}

// TestTheRegistryDoesWhatAModelDoes compares the registry with a model that knows the
// table of states and scans all that it has.
func TestTheRegistryDoesWhatAModelDoes(t *testing.T) {
	var seen [registry.Gone + 1]atomic.Bool
	t.Run("seeds", func(t *testing.T) { // returns when all of them have
		forEachSeed(t, 20, func(t *testing.T, seed uint64, steps int) {
			m := newModel(t, seed)
			for m.step = range steps {
				m.act()
				if m.step%100 == 0 {
					m.compareAll()
				}
			}
			m.compareAll()
			for state, reached := range m.seen {
				if reached {
					seen[state].Store(true)
				}
			}
		})
	})
	for state := registry.Unknown; state <= registry.Gone; state++ {
		assert.Check(t, seen[state].Load(), "the steps lead to the state %s", state)
	}
}

// modelled is an instance as the model knows it.
type modelled struct {
	e        *registry.Entry
	id       registry.ID
	provider *provider // nil for what is left
	label    string
	state    registry.State
	left     registry.Record
	spec     registry.Spec
	sandbox  string

	waiters, holds, executions                     int
	cancelled, switching, shared, notKept, removed bool
	noted                                          bool
	note                                           int // the newest
	lastUsed, expires, deadline, retryAt, charge   time.Time
	endPause                                       bool      // its end has it paused
	failing, pauseAgain                            time.Time // of that
}

// limit is the end that no use moves.
func (x *modelled) limit() time.Time {
	if x.spec.Fixed {
		return x.expires
	}
	return x.deadline
}

// alarm is somebody who wants to be told of the limit.
type alarm struct {
	x    *modelled
	stop func()
	rang atomic.Int64
}

// retiring is a provider that gets no new instances.
type retiring struct {
	empty <-chan struct{}
	lost  bool
}

type model struct {
	t       *testing.T
	seed    uint64
	rand    *rand.Rand
	step    int
	doing   string
	reg     *registry.Registry
	effects *effects
	catalog []*provider
	retired map[*provider]*retiring
	alarms  []*alarm
	all     []*modelled // those that are not gone
	past    []*modelled // some that are
	owners  map[registry.SessionKey]*modelled
	seen    map[registry.State]bool
	n       int
	// What the effects were asked for.
	terminated, paused, ended, noted int
	unanswered                       []int // notes
	byNote                           map[int]*modelled
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), effects: &effects{},
		catalog: []*provider{{label: "a"}, {label: "b", ephemeral: true}},
		retired: map[*provider]*retiring{}, owners: map[registry.SessionKey]*modelled{}, seen: map[registry.State]bool{},
		byNote: map[int]*modelled{},
	}
	m.reg = registry.New(m.effects)
	for range 10 {
		m.load()
	}
	return m
}

func (m *model) want(ok bool, format string, args ...any) {
	if !ok {
		m.t.Helper()
		m.t.Fatalf("-seed %d, step %d, %s: wanted: %s", m.seed, m.step, m.doing, fmt.Sprintf(format, args...))
	}
}

func (m *model) chance(percent int) bool { return m.rand.IntN(100) < percent }

func pick[T any](m *model, from ...T) T { return from[m.rand.IntN(len(from))] }

func (m *model) id() registry.ID {
	m.n++
	return registry.ID{Tenant: pick(m, "t", "t-1", "u"), Session: pick(m, "1", "2", "3", "4"), Instance: fmt.Sprintf("%08d", m.n)}
}

func (x *modelled) key() registry.SessionKey {
	return registry.SessionKey{Tenant: x.id.Tenant, Session: x.id.Session, Provider: x.label}
}

// move makes the transition that the table has, if it has one.
func (m *model) move(x *modelled, event registry.Event) bool {
	next, err := registry.Next(x.state, event)
	if err != nil {
		return false
	}
	x.state = next
	m.seen[next] = true
	if (next == registry.Orphaned || next.Detached() || next >= registry.Draining) && m.owners[x.key()] == x {
		delete(m.owners, x.key())
	}
	if next == registry.Gone {
		m.all = slices.DeleteFunc(m.all, func(y *modelled) bool { return y == x })
		m.past = append(m.past, x)[max(0, len(m.past)-20):]
		x.charge = time.Time{}
		m.endRetirement(x.provider)
	}
	return true
}

// vanish is a transition to Gone that the owner of the registry is told of.
func (m *model) vanish(x *modelled, event registry.Event) bool {
	if !m.move(x, event) {
		return false
	}
	m.ended++
	return true
}

func (m *model) endRetirement(p *provider) {
	r := m.retired[p]
	if r == nil || slices.ContainsFunc(m.all, func(x *modelled) bool { return x.provider == p }) {
		return
	}
	delete(m.retired, p)
}

func (m *model) own(x *modelled) {
	if m.owners[x.key()] == nil {
		m.owners[x.key()] = x
	}
}

func (m *model) terminate(x *modelled) {
	if m.move(x, registry.Terminate) {
		m.terminated++
	}
}

func (m *model) retire(x *modelled) {
	if x.holds > 0 {
		m.move(x, registry.Drain)
		return
	}
	m.terminate(x)
}

func (m *model) drop(x *modelled) {
	if x.holds--; x.holds == 0 && x.state == registry.Draining {
		m.terminate(x)
	}
}

func (m *model) use(x *modelled) {
	x.lastUsed = time.Now()
	if kept := x.lastUsed.Add(x.spec.TTL); !x.spec.Fixed && kept.After(x.expires) {
		x.expires = kept
	}
	x.expires = first(x.expires, x.deadline)
}

func (m *model) noteUse(x *modelled) {
	if !x.noted && !x.spec.OneShot && !x.spec.Fixed {
		x.noted, x.note = true, m.noted
		m.byNote[m.noted] = x
		m.unanswered = append(m.unanswered, m.noted)
		m.noted++
	}
}

func (x *modelled) over() bool {
	end := first(x.expires, x.lastUsed.Add(x.spec.Idle))
	if x.holds > 0 || x.spec.Fixed {
		end = x.limit()
	}
	if x.pauseAgain.After(end) {
		end = first(x.pauseAgain, x.deadline)
	}
	if x.spec.PauseAtEnd && x.state.MayBePaused() {
		end = x.deadline
	}
	return x.state.Visible() && x.waiters == 0 && !time.Now().Before(end)
}

func (m *model) expire(x *modelled) bool {
	if x == nil || !x.over() {
		return false
	}
	if x.spec.PauseAtEnd && x.state == registry.Running && time.Now().Before(x.deadline) {
		if !x.switching && m.move(x, registry.PauseBegun) {
			x.switching, x.endPause = true, true
			m.paused++
		}
		return false
	}
	m.retireExpired(x)
	return true
}

func (m *model) retireExpired(x *modelled) {
	if x.spec.Fixed {
		m.terminate(x)
	} else {
		m.retire(x)
	}
}

func first(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// compare looks at one instance, and at what the effects were asked for.
func (m *model) compare(x *modelled) {
	i := x.e.Snapshot()
	m.want(i.State == x.state, "%s is %s, not %s", x.id, x.state, i.State)
	m.want(i.Waiters == x.waiters && i.Holds == x.holds && i.Executions == x.executions,
		"%s has %d waiters, %d holds, %d executions, not %d, %d, %d", x.id, x.waiters, x.holds, x.executions, i.Waiters, i.Holds, i.Executions)
	m.want(i.Cancelled == x.cancelled && i.NotKept == x.notKept && i.UseNoted == x.noted,
		"%s is cancelled %t, not kept %t, noted %t", x.id, x.cancelled, x.notKept, x.noted)
	m.want(i.Expires.Equal(x.expires) && i.Deadline.Equal(x.deadline), "%s ends at %v, not %v", x.id, x.expires, i.Expires)
	m.want(maps.Equal(i.Labels, x.spec.Labels) && i.Fixed == x.spec.Fixed && i.FrontDoor == x.spec.FrontDoor,
		"%s is fixed %t, of the front door %q, with the labels %v", x.id, x.spec.Fixed, x.spec.FrontDoor, x.spec.Labels)
	m.want(len(m.effects.terminated) == m.terminated, "%d destructions, not %d", m.terminated, len(m.effects.terminated))
	m.want(len(m.effects.paused) == m.paused && i.EndPause == x.endPause, "%d pauses at an end, not %d; %t for %s", m.paused, len(m.effects.paused), x.endPause, x.id)
	m.want(len(m.effects.ended) == m.ended, "%d ends, not %d", m.ended, len(m.effects.ended))
	m.want(len(m.effects.notes) == m.noted, "%d notes, not %d", m.noted, len(m.effects.notes))
}

func (m *model) compareAll() {
	err := m.reg.Check()
	m.want(err == nil, "indexes that agree: %v", err)
	counts, onProvider, inUse := map[string]map[registry.State]int{"a": {}, "b": {}}, map[*provider]int{}, map[*provider]int{}
	for _, x := range m.all {
		m.compare(x)
		e, _ := m.reg.ByName(x.id.Instance)
		m.want(e == x.e, "%s by its name", x.id)
		counts[x.label][x.state]++
		if x.provider == nil {
			continue
		}
		onProvider[x.provider]++
		if x.state.Creating() || x.state.Visible() {
			inUse[x.provider]++
		}
	}
	have := m.reg.Counts()
	for label, of := range counts {
		m.want(fmt.Sprint(of) == fmt.Sprint(have[label]) || len(of)+len(have[label]) == 0, "counts of %s are %v, not %v", label, of, have[label])
	}
	for _, p := range append(slices.Collect(maps.Keys(m.retired)), m.catalog...) {
		all, used := m.reg.Count(p)
		m.want(all == onProvider[p] && used == inUse[p], "%d on %s, %d in use, not %d, %d", onProvider[p], p.label, inUse[p], all, used)
		m.want(m.reg.Lost(p) == (m.retired[p] != nil && m.retired[p].lost), "lost or not: %s", p.label)
	}
	m.want(len(m.reg.Retiring()) == len(m.retired), "%d retire", len(m.retired))
}

// act takes one step.
func (m *model) act() {
	switch n := m.rand.IntN(100); {
	case n < 22:
		m.doing = "claim"
		m.claim()
	case n < 25:
		m.doing = "pass time"
		time.Sleep(time.Duration(m.rand.IntN(int(3 * time.Second))))
		m.listen()
	case n < 28:
		m.doing = "expire"
		m.expireAll()
	case n < 29:
		m.doing = "change a provider"
		m.changeProvider()
	case n < 30 && m.chance(20):
		m.doing = "remove a tenant"
		m.removeTenant()
	case n < 32:
		m.doing = "note"
		m.answerNote()
	case n < 34:
		m.doing = "list"
		m.list()
	case n < 35:
		m.doing = "charge"
		m.chargeable()
	case n < 37:
		m.doing = "load"
		m.load()
	case len(m.all) > 0:
		x := pick(m, m.all...)
		if m.chance(3) && len(m.past) > 0 {
			x = pick(m, m.past...)
		}
		m.onOne(x)
		m.compare(x)
	}
}

func (m *model) load() {
	if len(m.all) > 40 {
		return
	}
	p, now := pick(m, m.catalog...), time.Now()
	r := registry.Record{
		ID: m.id(), Provider: p.label, TTL: time.Second * time.Duration(1+m.rand.IntN(5)), Idle: time.Second * time.Duration(3+m.rand.IntN(8)), Intended: now,
		Claimed: m.chance(80), OneShot: m.chance(10), Ending: m.chance(10), Used: m.chance(30), Paused: m.chance(30),
		Fixed: m.chance(30), PauseAtEnd: m.chance(30), FrontDoor: pick(m, "", "door"),
	}
	if m.chance(70) {
		r.Made = "box-" + r.ID.Instance
		r.Created, r.Expires, r.Deadline = now, now.Add(r.TTL), now.Add(30*time.Second)
	}
	m.reg.Load(r, nil)
	e, _ := m.reg.ByName(r.ID.Instance)
	x := &modelled{e: e, id: r.ID, label: p.label, left: r, sandbox: r.Made, state: registry.Unknown}
	if r.Ending {
		x.state = registry.Orphaned
	}
	m.seen[x.state] = true
	m.all = append(m.all, x)
	if !r.Ending && (r.OneShot && r.Claimed || !r.OneShot && (r.Made != "" || r.Claimed)) {
		m.own(x)
	}
}

var errRefused = errors.New("refused")

func (m *model) claim() {
	p, refused, offered := pick(m, m.catalog...), m.chance(2), !m.chance(3)
	if old := slices.Collect(maps.Keys(m.retired)); len(old) > 0 && m.chance(10) {
		p, offered = pick(m, old...), false
	}
	refuse := func(percent int) (bool, func() error) {
		no := m.chance(percent)
		return no, func() error {
			if no {
				return errRefused
			}
			return nil
		}
	}
	newRefused, onNew := refuse(3)
	unfit, matches := refuse(3)
	c := claimOf(m.id(), p)
	c.Spec.TTL, c.Spec.Idle = time.Second*time.Duration(1+m.rand.IntN(5)), time.Second*time.Duration(3+m.rand.IntN(8))
	c.Spec.OneShot, c.Joins = m.chance(10), m.chance(10)
	c.Spec.Fixed, c.Spec.PauseAtEnd, c.Spec.FrontDoor = m.chance(30), m.chance(30), pick(m, "", "door")
	c.New, c.Matches = onNew, func(registry.Spec) error { return matches() }
	c.Offered = func() bool { return offered }
	if refused {
		c.Guard = func() error { return errRefused }
	}
	claimed, err := m.reg.Claim(c)
	if refused {
		m.want(errors.Is(err, errRefused), "a refusal: %v", err)
		return
	}
	x := m.owners[registry.SessionKey{Tenant: c.ID.Tenant, Session: c.ID.Session, Provider: p.label}]
	if m.expire(x) {
		x = nil
	}
	switch left := x != nil && x.state.Left(); {
	case x != nil && !left && x.provider != p, (x == nil || left) && !offered, x == nil && c.Joins:
		m.want(errors.Is(err, registry.ErrMoved), "that it belongs elsewhere: %v", err)
	case left && (x.left.Made != "" || x.left.OneShot):
		m.want(sdk.CodeOf(err) == sdk.CodeUnavailable, "that nobody knows yet: %v", err)
	case x == nil && newRefused, x != nil && unfit:
		m.want(errors.Is(err, errRefused), "a refusal: %v", err)
	case x == nil:
		m.want(err == nil && claimed.Begun && !claimed.Held && claimed.Retried == nil, "a new one: %v", err)
		x = &modelled{e: claimed.Entry, id: c.ID, provider: p, label: p.label, state: registry.Pending, spec: c.Spec, waiters: 1}
		m.seen[x.state] = true
		m.all = append(m.all, x)
		m.own(x)
	case left:
		m.want(err == nil && claimed.Begun && claimed.Entry == x.e && claimed.Retried.ID == x.id, "another attempt: %v", err)
		m.want(m.move(x, registry.Retried), "a legal retry")
		x.spec, x.provider, x.waiters = c.Spec, p, 1
		x.spec.TTL, x.spec.Idle, x.spec.Labels, x.spec.Fixed, x.spec.PauseAtEnd, x.spec.FrontDoor = x.left.TTL, x.left.Idle, nil, x.left.Fixed, x.left.PauseAtEnd, x.left.FrontDoor
	case x.state.Visible():
		m.want(err == nil && claimed.Held && claimed.Entry == x.e, "a hold: %v", err)
		x.shared = true
		x.holds++
		m.noteUse(x)
	default:
		m.want(err == nil && claimed.Entry == x.e && !claimed.Held && !claimed.Begun, "a place among those who wait: %v", err)
		m.want(claimed.Late == (x.state.Unclear() || x.cancelled), "late or not: %s", x.state)
		x.shared = true
		x.waiters++
	}
	if x != nil {
		m.compare(x)
	}
}

func (m *model) expireAll() {
	m.reg.Expire(time.Now())
	for _, x := range slices.Clone(m.all) {
		if x.state == registry.Terminating && !x.retryAt.IsZero() && !time.Now().Before(x.retryAt) {
			x.retryAt = time.Time{}
			m.terminate(x)
			continue
		}
		m.expire(x)
	}
}

// changeProvider has another provider of the same label in the catalog, and ends those
// that were there before.
func (m *model) changeProvider() {
	if old := slices.Collect(maps.Keys(m.retired)); len(old) > 0 && m.chance(50) {
		p := pick(m, old...)
		m.lose(p)
		return
	}
	at := m.rand.IntN(len(m.catalog))
	p := m.catalog[at]
	m.catalog[at] = &provider{label: p.label, ephemeral: p.ephemeral}
	if m.chance(30) {
		m.lose(p)
		return
	}
	r := &retiring{empty: m.reg.Retire(p)}
	m.retired[p] = r
	m.endRetirement(p)
	select {
	case <-r.empty:
		m.want(m.retired[p] == nil, "some are on the provider still")
	default:
		m.want(m.retired[p] != nil, "the provider has none")
	}
}

func (m *model) lose(p *provider) {
	m.reg.LoseAll(p, registry.ReasonRemoved)
	r := cmp.Or(m.retired[p], &retiring{})
	r.lost = true
	m.retired[p] = r
	for _, x := range slices.Clone(m.all) {
		if x.provider == p && !x.state.Creating() {
			m.vanish(x, registry.Vanished)
		}
	}
	m.endRetirement(p)
	if r.empty != nil && m.retired[p] == nil {
		<-r.empty
	}
}

func (m *model) removeTenant() {
	name := pick(m, "t", "t-1", "u")
	got := m.reg.RemoveTenants(func(tenant string) bool { return tenant != name }, "its tenant was removed")
	n := 0
	for _, x := range slices.Clone(m.all) {
		visible := x.state.Visible()
		if x.id.Tenant != name || x.removed || x.state == registry.Orphaned || !m.move(x, registry.TenantRemoved) {
			continue
		}
		x.removed = true
		n++
		switch {
		case visible:
			m.terminated++
		case x.state == registry.PendingDetached, x.state == registry.RecordingDetached:
			x.cancelled = true
		}
	}
	m.want(len(got) == n, "%d end, not %d", n, len(got))
}

// answerNote says of one of the uses that it was written down or not, in any order.
func (m *model) answerNote() {
	if len(m.unanswered) == 0 {
		return
	}
	at, done := m.rand.IntN(len(m.unanswered)), m.chance(70)
	n := m.unanswered[at]
	m.unanswered = slices.Delete(m.unanswered, at, at+1)
	m.effects.notes[n](done)
	x := m.byNote[n]
	delete(m.byNote, n)
	if x.note == n && !done {
		x.noted = false
	}
	m.compare(x)
}

func (m *model) list() {
	tenant, req := pick(m, "t", "t-1", "u", ""), registry.ListRequest{Limit: m.rand.IntN(4), Session: pick(m, "", "", "2"), Provider: pick(m, "", "", "a"), FrontDoor: pick(m, "", "", "door")}
	if m.chance(50) {
		req.After = m.id().String()
		if len(m.all) > 0 && m.chance(80) {
			req.After = pick(m, m.all...).id.String()
		}
	}
	list, more := func() ([]registry.Instance, bool) {
		if tenant == "" {
			return m.reg.ListAll(req)
		}
		return m.reg.List(tenant, req)
	}()
	wantMore, i := false, 0
	sorted := slices.SortedFunc(slices.Values(m.all), func(a, b *modelled) int { return cmp.Compare(a.id.String(), b.id.String()) })
	for _, x := range sorted {
		switch {
		case tenant != "" && x.id.Tenant != tenant, req.Session != "" && x.id.Session != req.Session, req.Provider != "" && x.label != req.Provider,
			req.FrontDoor != "" && x.spec.FrontDoor != req.FrontDoor:
			continue
		case x.id.String() <= req.After, !x.state.Visible(), m.expire(x):
			continue
		}
		if wantMore = req.Limit > 0 && i == req.Limit; wantMore {
			break
		}
		m.want(i < len(list) && list[i].ID == x.id, "%s in the list at %d: %v", x.id, i, names(list))
		i++
	}
	m.want(i == len(list) && more == wantMore, "%d in the list %+v, more: %t; not %v, %t", i, req, wantMore, names(list), more)
}

func (m *model) chargeable() {
	due := map[*registry.Entry]bool{}
	for _, e := range m.reg.Chargeable(time.Now()) {
		m.want(!due[e], "%s once", e.ID())
		due[e] = true
	}
	for _, x := range m.all {
		now := !x.charge.IsZero() && !time.Now().Before(x.charge)
		m.want(due[x.e] == now, "%s is to be charged: %t", x.id, now)
		if delete(due, x.e); now {
			x.charge = time.Time{}
		}
	}
	m.want(len(due) == 0, "nobody else is charged: %v", due)
}
