package registry_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAdopt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*registry.Record)
		want   registry.State
	}{
		"one that was made":           {nil, registry.Running},
		"one that was paused":         {func(r *registry.Record) { r.Paused = true }, registry.Paused},
		"one that was only intended":  {func(r *registry.Record) { r.Made = "" }, registry.Running},
		"one that nobody can ask for": {func(r *registry.Record) { r.Made, r.Claimed = "", false }, registry.Unknown},
		"one for one execution":       {func(r *registry.Record) { r.OneShot = true }, registry.Unknown},
		"one that was to end":         {func(r *registry.Record) { r.Ending = true }, registry.Orphaned},
		"one that ran out in between": {func(r *registry.Record) { r.Expires = r.Created }, registry.Running},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				e := f.left(c.change)
				time.Sleep(time.Second)
				i, adopted := e.Adopt(f.provider, sdk.Instance{ID: "box-" + e.ID().Instance}, maxLifetime, always)
				assert.Equal(t, adopted, e.Snapshot().State != registry.Unknown && e.Snapshot().State != registry.Orphaned)
				assert.Equal(t, e.Snapshot().State, c.want)
				assert.Equal(t, len(f.Left("cloud")) == 0, adopted)
				if adopted {
					assert.Equal(t, i.Template, "python")
					home, _ := f.Home(registry.SessionKey{Tenant: "t", Session: "s", Provider: "cloud"})
					assert.Equal(t, home == e, i.Expires.After(time.Now()), "its session's, if its time is not over")
				}
			})
		})
	}
}

func TestOneOfTwoThatWereLeftForASessionIsAdopted(t *testing.T) {
	f := newFixture(t)
	first, second := f.left(nil), f.left(nil)
	adopt := func(e *registry.Entry) bool {
		_, adopted := e.Adopt(f.provider, sdk.Instance{ID: e.Snapshot().Left.Made}, maxLifetime, always)
		return adopted
	}
	assert.Assert(t, !adopt(second))
	assert.Assert(t, adopt(first))
	assert.Assert(t, !adopt(first), "once")
	assert.Assert(t, first.Lose(registry.ReasonLost))
	assert.Assert(t, adopt(second))
}

// A list of a provider that was lost meanwhile is of no use: nobody could reach what it
// adopts.
func TestNobodyAdoptsForAProviderThatIsGone(t *testing.T) {
	never := func() bool { return false }
	for name, c := range map[string]struct {
		before  func(*fixture)
		serves  func() bool
		adopted bool
	}{
		"one in the catalog":               {func(*fixture) {}, always, true},
		"one that was removed":             {func(*fixture) {}, never, false},
		"one that keeps what it has":       {func(f *fixture) { f.running(); f.Retire(f.provider) }, never, true},
		"one that is lost":                 {func(f *fixture) { f.pendingOf("t", "other"); f.LoseAll(f.provider, registry.ReasonRemoved) }, always, false},
		"one that is lost with all it had": {func(f *fixture) { f.LoseAll(f.provider, registry.ReasonRemoved) }, never, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Load(registry.Record{ID: f.id("t", "left"), Provider: "cloud", Made: "box", Claimed: true}, nil)
			c.before(f)
			e := f.Left("cloud")[0]
			_, adopted := e.Adopt(f.provider, sdk.Instance{ID: "box"}, maxLifetime, c.serves)
			assert.Equal(t, adopted, c.adopted)
		})
	}
}

func TestSettle(t *testing.T) {
	permit := &quota.Instance{}
	f := newFixture(t)
	id := f.id("t", "s")
	f.Load(registry.Record{ID: id, Provider: "cloud", Claimed: true}, permit)
	e, _ := f.ByName(id.Instance)
	tombstone := registry.Tombstone{ID: id, At: time.Now(), Reason: registry.ReasonRestart}
	got, ok := e.Settle(tombstone)
	assert.Assert(t, ok && got == permit)
	assert.Equal(t, len(f.effects.ended), 0, "the caller has the permit, and tells the journal")
	_, ok = e.Settle(tombstone)
	assert.Assert(t, !ok)
	_, _, err := f.Find("t", id.String())
	assert.ErrorContains(t, err, registry.ReasonRestart)
	_, ok = f.runningOf("t", "2").Settle(tombstone)
	assert.Assert(t, !ok, "it is known")
}

func TestNobodyIsToldOfWhatARemovedTenantHad(t *testing.T) {
	f := newFixture(t)
	e := f.left(nil)
	f.RemoveTenants(func(string) bool { return false }, "removed")
	_, ok := e.Settle(registry.Tombstone{ID: e.ID(), At: time.Now(), Reason: registry.ReasonLost})
	assert.Assert(t, ok)
	_, _, err := f.Find("t", e.ID().String())
	assert.Error(t, err, registry.NoSuchInstance().Error())
}

func TestASessionTriesAgainWhatAnEarlierProcessIntended(t *testing.T) {
	f := newFixture(t)
	e := f.left(func(r *registry.Record) { r.Made, r.TTL = "", time.Hour })
	claimed, err := f.Claim(claimOf(f.id("t", "s"), f.provider))
	assert.NilError(t, err)
	assert.Assert(t, claimed.Begun && claimed.Entry == e)
	assert.Equal(t, claimed.Retried.ID, e.ID(), "the same ID gives the same instance")
	i := e.Snapshot()
	assert.Equal(t, i.State, registry.Pending)
	assert.Equal(t, i.TTL, time.Hour, "as it was intended")
	assert.Equal(t, len(f.Left("")), 0)
	all, inUse := f.Count(f.provider)
	assert.Equal(t, all, 1)
	assert.Equal(t, inUse, 1)
}

func TestTenantsAreRemovedInEachState(t *testing.T) {
	type result struct {
		State     registry.State
		Told      bool // that it ends
		Destroyed int
	}
	wants := map[registry.State]result{
		registry.Unknown: {registry.Orphaned, true, 0}, registry.Orphaned: {registry.Orphaned, false, 0},
		registry.Pending: {registry.PendingDetached, true, 0}, registry.PendingDetached: {registry.PendingDetached, true, 0},
		registry.Ambiguous: {registry.AmbiguousDetached, true, 0}, registry.AmbiguousDetached: {registry.AmbiguousDetached, true, 0},
		registry.Recording: {registry.RecordingDetached, true, 0}, registry.RecordingDetached: {registry.RecordingDetached, true, 0},
		registry.Running: {registry.Terminating, true, 1}, registry.Pausing: {registry.Terminating, true, 1},
		registry.Paused: {registry.Terminating, true, 1}, registry.Resuming: {registry.Terminating, true, 1},
		registry.Draining: {registry.Draining, true, 0}, registry.Terminating: {registry.Terminating, true, 0},
		registry.Gone: {registry.Gone, false, 0},
	}
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, e *registry.Entry) {
		other := f.runningOf("u", "s")
		before := len(f.effects.terminated)
		told := f.RemoveTenants(func(tenant string) bool { return tenant == "u" }, "removed")
		got := result{e.Snapshot().State, slices.Contains(told, e), len(f.effects.terminated) - before}
		assert.DeepEqual(t, got, wants[state])
		assert.Equal(t, other.Snapshot().State, registry.Running)
		_, _, err := f.Find("t", e.ID().String())
		assert.Error(t, err, registry.NoSuchInstance().Error())
		assert.Assert(t, !e.Reclaim(), "nobody gets it back")
		assert.Equal(t, len(f.RemoveTenants(func(tenant string) bool { return tenant == "u" }, "removed")), 0, "once")
		claimed, err := f.Claim(claimOf(f.id("t", "s"), f.provider))
		assert.NilError(t, err)
		assert.Assert(t, claimed.Begun, "who gets the name gets nothing with it")
	})
}

func TestAProviderIsLostInEachState(t *testing.T) {
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, e *registry.Entry) {
		empty := f.Retire(f.provider)
		f.LoseAll(f.provider, registry.ReasonRemoved)
		want := registry.Gone
		if state.Creating() || state.Left() {
			want = state
		}
		assert.Equal(t, e.Snapshot().State, want)
		if state.Creating() {
			assert.Assert(t, f.Lost(f.provider))
			assert.Equal(t, len(f.Retiring()), 1)
			e.Created(registry.Refused, errRefused, nil)
		}
		<-empty
		assert.Equal(t, len(f.Retiring()), 0)
	})
}

func TestARetiredProviderKeepsWhatItHas(t *testing.T) {
	f := newFixture(t)
	e := f.running()
	empty := f.Retire(f.provider)
	select {
	case <-empty:
		t.Fatal("it has one still")
	default:
	}
	assert.Assert(t, !f.Lost(f.provider))
	_, _, err := f.Find("t", e.ID().String())
	assert.NilError(t, err)
	assert.Assert(t, e.Lose(registry.ReasonLost))
	<-empty
	<-f.Retire(&provider{label: "nothing"})
}

func TestLists(t *testing.T) {
	f := newFixture(t)
	var all []string
	// A tenant's name may begin with another's, and be followed by what is before a colon.
	for _, tenant := range []string{"a", "a-b", "ab", "b"} {
		for n := range 3 {
			e := f.runningOf(tenant, fmt.Sprint("s", n))
			all = append(all, e.ID().String())
		}
		f.pendingOf(tenant, "s9") // nobody finds it
	}
	slices.Sort(all)
	for name, c := range map[string]struct {
		tenant string
		req    registry.ListRequest
		want   []string
		more   bool
	}{
		"all":                       {"", registry.ListRequest{}, all, false},
		"one tenant's":              {"a", registry.ListRequest{}, only(all, "a:"), false},
		"a stranger's":              {"c", registry.ListRequest{}, nil, false},
		"a session's":               {"ab", registry.ListRequest{Session: "s1"}, only(all, "ab:s1"), false},
		"those of a provider":       {"b", registry.ListRequest{Provider: "cloud"}, only(all, "b:"), false},
		"those of another":          {"", registry.ListRequest{Provider: "other"}, nil, false},
		"those with a label":        {"", registry.ListRequest{Labels: map[string]string{"x": ""}}, nil, false},
		"a page":                    {"a", registry.ListRequest{Limit: 2}, only(all, "a:")[:2], true},
		"the whole in a page":       {"a", registry.ListRequest{Limit: 3}, only(all, "a:"), false},
		"after the last of another": {"b", registry.ListRequest{After: "ab:s9:x"}, only(all, "b:"), false},
		"after the end":             {"b", registry.ListRequest{After: "c"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			page, more := f.List(c.tenant, c.req)
			if c.tenant == "" {
				page, more = f.ListAll(c.req)
			}
			assert.DeepEqual(t, names(page), c.want)
			assert.Equal(t, more, c.more)
		})
	}
	for limit := 1; limit <= len(all)+1; limit++ {
		var got []string
		for after, more := "", true; more; after = got[len(got)-1] {
			var page []registry.Instance
			page, more = f.ListAll(registry.ListRequest{Limit: limit, After: after})
			got = append(got, names(page)...)
		}
		assert.DeepEqual(t, got, all)
	}
}

func only(all []string, prefix string) (some []string) {
	for _, id := range all {
		if len(id) > len(prefix) && id[:len(prefix)] == prefix {
			some = append(some, id)
		}
	}
	return some
}

func TestCountsInEachState(t *testing.T) {
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, e *registry.Entry) {
		all, inUse := f.Count(f.provider)
		there := state != registry.Gone && !state.Left()
		assert.Equal(t, all == 1, there)
		assert.Equal(t, inUse == 1, state.Creating() || state.Visible())
		assert.Equal(t, slices.Contains(f.On(f.provider), e), there && state.Decided())
	})
}

func TestShutdownInEachState(t *testing.T) {
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, e *registry.Entry) {
		destroy, kept := f.Shutdown(func(registry.Instance) bool { return true })
		assert.Equal(t, kept == 1, state.Visible())
		assert.Equal(t, slices.Contains(destroy, e), state == registry.Terminating)
		destroy, kept = f.Shutdown(func(registry.Instance) bool { return false })
		assert.Equal(t, kept, 0)
		assert.Equal(t, slices.Contains(destroy, e), state.Visible() || state == registry.Terminating)
	})
}

func TestSuperseded(t *testing.T) {
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, _ *registry.Entry) {
		next := f.pendingOf("t", "other")
		assert.Equal(t, len(next.Superseded()), 0)
		claimed, err := f.Claim(claimOf(f.id("t", "s"), &provider{label: "another"}))
		assert.NilError(t, err)
		given := state.Detached() || state == registry.Draining || state == registry.Terminating
		assert.Equal(t, len(claimed.Entry.Superseded()) == 1, given)
	})
}

func TestChargeableTakesOutWhatIsDue(t *testing.T) {
	f := newFixture(t)
	e, later := f.runningOf("t", "1"), f.runningOf("t", "2")
	now := time.Now()
	e.Charged(now)
	later.Charged(now.Add(time.Second))
	assert.DeepEqual(t, len(f.Chargeable(now)), 1)
	assert.Equal(t, len(f.Chargeable(now)), 0)
	e.Charged(now.Add(time.Minute))
	later.Charged(time.Time{})
	assert.Equal(t, len(f.Chargeable(now.Add(30*time.Second))), 0)
	e.Lose("")
	e.Charged(now)
	assert.Equal(t, len(f.Chargeable(now.Add(time.Hour))), 0, "what is gone pays no more")
}
