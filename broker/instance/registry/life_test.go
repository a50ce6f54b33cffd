package registry_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// inBubble runs a test in which time is the test's.
func inBubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFixture(t)) })
}

func TestClaimInEachState(t *testing.T) {
	type result struct {
		Begun, Held, Late, Retried bool
		Same                       bool // the instance that there was
		Code                       sdk.Code
	}
	nobodyKnows := result{Code: sdk.CodeUnavailable}
	held, waits, late, another := result{Held: true, Same: true}, result{Same: true}, result{Same: true, Late: true}, result{Begun: true}
	wants := map[registry.State]result{
		registry.Unknown: nobodyKnows, registry.Orphaned: another,
		registry.Pending: waits, registry.PendingDetached: another,
		registry.Ambiguous: late, registry.AmbiguousDetached: another,
		registry.Recording: waits, registry.RecordingDetached: another,
		registry.Running: held, registry.Pausing: held, registry.Paused: held, registry.Resuming: held,
		registry.Draining: another, registry.Terminating: another, registry.Gone: another,
	}
	forEachState(t, func(t *testing.T, f *fixture, state registry.State, e *registry.Entry) {
		want, listed := wants[state]
		assert.Assert(t, listed)
		claimed, err := f.Claim(claimOf(f.id("t", "s"), f.provider))
		got := result{
			Begun: claimed.Begun, Held: claimed.Held, Late: claimed.Late, Retried: claimed.Retried != nil,
			Same: claimed.Entry == e, Code: sdk.CodeOf(err),
		}
		assert.DeepEqual(t, got, want)
	})
}

func TestAClaimIsRefused(t *testing.T) {
	refusal := errors.New("refused")
	refuse := func() error { return refusal }
	for name, c := range map[string]struct {
		state  registry.State
		change func(f *fixture, c *registry.Claim)
		want   error
	}{
		"by its guard":                   {registry.Gone, func(_ *fixture, c *registry.Claim) { c.Guard = refuse }, refusal},
		"by its guard, with an instance": {registry.Running, func(_ *fixture, c *registry.Claim) { c.Guard = refuse }, refusal},
		"for a new one":                  {registry.Gone, func(_ *fixture, c *registry.Claim) { c.New = refuse }, refusal},
		"where it only joins":            {registry.Gone, func(_ *fixture, c *registry.Claim) { c.Joins = true }, registry.ErrMoved},
		"where the provider gets no new ones": {registry.Gone, func(_ *fixture, c *registry.Claim) {
			c.Offered = func() bool { return false }
		}, registry.ErrMoved},
		"for one that does not match": {registry.Running, func(_ *fixture, c *registry.Claim) {
			c.Matches = func(registry.Spec) error { return refusal }
		}, refusal},
		"where another provider of the label has the session": {registry.Running, func(_ *fixture, c *registry.Claim) {
			c.Provider = &provider{label: "cloud"}
		}, registry.ErrMoved},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.in(c.state)
			claim := claimOf(f.id("t", "s"), f.provider)
			c.change(f, &claim)
			before := f.Counts()
			_, err := f.Claim(claim)
			assert.ErrorIs(t, err, c.want)
			assert.DeepEqual(t, f.Counts(), before)
		})
	}
}

func TestACreationThatNobodyWaitsForIsCancelledAndDestroyed(t *testing.T) {
	f := newFixture(t)
	e := f.pending()
	cancelled := 0
	e.OnCancel(func() { cancelled++ })
	e.Wait()
	e.StopWaiting(false)
	assert.Equal(t, cancelled, 0, "somebody waits still")
	e.StopWaiting(false)
	assert.Equal(t, cancelled, 1)
	claimed, err := f.Claim(claimOf(f.id("t", "s"), f.provider))
	assert.NilError(t, err)
	assert.Assert(t, claimed.Late, "who comes then is told so")
	e.StopWaiting(false)
	f.made(e)
	assert.Equal(t, e.Created(registry.Ours, nil, nil).State, registry.Terminating)
	assert.Equal(t, len(f.effects.terminated), 1)
}

func TestTheEndOfACreation(t *testing.T) {
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		begin   func(f *fixture) *registry.Entry
		outcome registry.Outcome
		failure error
		want    registry.State
		ends    int // that are told
	}{
		"success":                      {(*fixture).recording, registry.Ours, nil, registry.Running, 0},
		"a refusal":                    {(*fixture).pending, registry.Refused, failure, registry.Gone, 1},
		"no answer":                    {(*fixture).pending, registry.Uncertain, failure, registry.Ambiguous, 0},
		"a journal that is full":       {(*fixture).recording, registry.Unrecorded, failure, registry.Terminating, 0},
		"a duplicate of somebody else": {(*fixture).pending, registry.Ours, failure, registry.Gone, 1},
		"success that was detached": {func(f *fixture) *registry.Entry {
			return f.in(registry.RecordingDetached)
		}, registry.Ours, nil, registry.Terminating, 0},
		"no answer to one that was detached": {func(f *fixture) *registry.Entry {
			return f.in(registry.PendingDetached)
		}, registry.Uncertain, failure, registry.AmbiguousDetached, 0},
		"no answer of a provider that was lost": {func(f *fixture) *registry.Entry {
			e := f.pending()
			f.LoseAll(f.provider, registry.ReasonRemoved)
			return e
		}, registry.Uncertain, failure, registry.Gone, 1},
		"success of a provider that was lost": {func(f *fixture) *registry.Entry {
			e := f.recording()
			f.LoseAll(f.provider, registry.ReasonRemoved)
			return e
		}, registry.Ours, nil, registry.Gone, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			e := c.begin(f)
			changed := e.Snapshot().Changed
			i := e.Created(c.outcome, c.failure, nil)
			assert.Equal(t, i.State, c.want)
			assert.Equal(t, i.Failure, c.failure)
			assert.Equal(t, len(f.effects.ended), c.ends)
			<-changed
			if c.want == registry.Gone && c.outcome == registry.Uncertain {
				assert.Equal(t, i.Outcome, registry.Refused, "nobody can ask")
			}
		})
	}
}

func TestNoTwoInstancesHaveWhatAProviderCallsTheSame(t *testing.T) {
	f := newFixture(t)
	first, second := f.runningOf("t", "1"), f.pendingOf("t", "2")
	box := first.Snapshot().Sandbox
	_, err := second.Made(box, maxLifetime)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
	assert.Equal(t, second.Snapshot().State, registry.Pending)
	_, err = f.pendingOf("u", "3").Made(sdk.Instance{ID: "box-left"}, maxLifetime)
	assert.NilError(t, err)

	left := f.left(func(r *registry.Record) { r.ID.Session = "4" })
	_, adopted := left.Adopt(f.provider, box, maxLifetime, always)
	assert.Assert(t, !adopted, "what somebody has is adopted by nobody")
	e, _ := f.ByProvidersID("cloud", box.ID)
	assert.Assert(t, e == first)
	assert.Assert(t, first.Lose(""))
	_, err = second.Made(box, maxLifetime)
	assert.NilError(t, err, "it is free again")
}

func TestAnInstanceThatWasMadeTwiceHasOneID(t *testing.T) {
	f := newFixture(t)
	e := f.recording()
	before := e.Snapshot().Sandbox.ID
	_, err := e.Made(sdk.Instance{ID: "another"}, maxLifetime)
	assert.NilError(t, err)
	holder, _ := f.ByProvidersID("cloud", before)
	assert.Assert(t, holder == nil)
	holder, _ = f.ByProvidersID("cloud", "another")
	assert.Assert(t, holder == e)
}

func TestUseKeepsAnInstance(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		e := f.running()
		time.Sleep(59 * time.Second)
		_, err := f.Hold("t", e.ID().String())
		assert.NilError(t, err)
		time.Sleep(30 * time.Minute)
		f.Expire(time.Now())
		assert.Equal(t, e.Snapshot().State, registry.Running, "what is in use stays")
		e.Release()
		time.Sleep(time.Minute - 1)
		f.Expire(time.Now())
		assert.Equal(t, e.Snapshot().State, registry.Running)
		time.Sleep(time.Nanosecond)
		f.Expire(time.Now())
		assert.Equal(t, e.Snapshot().State, registry.Terminating)
		_, _, err = f.Find("t", e.ID().String())
		assert.ErrorContains(t, err, registry.ReasonExpired)
	})
}

func TestAnInstanceInUseDrainsAtItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		e := f.running()
		for range 2 {
			_, err := f.Hold("t", e.ID().String())
			assert.NilError(t, err)
		}
		time.Sleep(maxLifetime)
		f.Expire(time.Now())
		assert.Equal(t, e.Snapshot().State, registry.Draining)
		_, err := f.Hold("t", e.ID().String())
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
		e.Release()
		assert.Equal(t, len(f.effects.terminated), 0)
		e.Drop(false)
		assert.Equal(t, len(f.effects.terminated), 1)
		assert.Equal(t, e.Snapshot().State, registry.Terminating)
	})
}

func TestWhoWaitedGetsAnInstanceHoweverShortItsLife(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		e := f.recording()
		e.Created(registry.Ours, nil, nil)
		time.Sleep(2 * maxLifetime)
		f.Expire(time.Now())
		_, held := e.StopWaiting(true)
		assert.Assert(t, held)
		f.Expire(time.Now())
		assert.Equal(t, e.Snapshot().State, registry.Draining)
	})
}

func TestADestructionThatFailedIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		e := f.in(registry.Terminating)
		before := len(f.effects.terminated)
		e.TerminationFailed(time.Now().Add(15 * time.Second))
		f.Expire(time.Now())
		assert.Equal(t, len(f.effects.terminated), before)
		time.Sleep(15 * time.Second)
		f.Expire(time.Now())
		f.Expire(time.Now())
		assert.Equal(t, len(f.effects.terminated), before+1, "once")
		e.Terminated(e.Tombstone())
		e.Terminated(e.Tombstone()) // two have tried
		assert.Equal(t, len(f.effects.ended), 1)
		assert.Assert(t, !f.effects.ended[0].unrecorded, "the journal knows")
	})
}

func TestDiscard(t *testing.T) {
	for name, c := range map[string]struct {
		shared, held, unlessShared bool
		want                       registry.State
	}{
		"at once":                   {want: registry.Terminating},
		"after its last use":        {held: true, want: registry.Draining},
		"shared":                    {shared: true, held: true, want: registry.Draining},
		"not if it is shared":       {shared: true, held: true, unlessShared: true, want: registry.Running},
		"if it could be and is not": {unlessShared: true, want: registry.Terminating},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			e := f.running()
			if c.shared {
				claimed, err := f.Claim(claimOf(f.id("t", "s"), f.provider))
				assert.NilError(t, err)
				assert.Assert(t, claimed.Held)
			} else if c.held {
				_, err := f.Hold("t", e.ID().String())
				assert.NilError(t, err)
			}
			e.Discard(c.unlessShared)
			assert.Equal(t, e.Snapshot().State, c.want)
		})
	}
}

func TestAUseIsNotedOnceMoreAfterARenewalWhileTheFirstNoteIsOnItsWay(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		e := f.running()
		hold := func() {
			_, err := f.Hold("t", e.ID().String())
			assert.NilError(t, err)
		}
		hold()
		awaited := make(chan struct{})
		go func() { e.AwaitUse(); close(awaited) }()
		synctest.Wait()
		_, _, err := f.Renew("t", e.ID().String(), 0, time.Minute)
		assert.NilError(t, err)
		assert.Assert(t, !e.Snapshot().UseNoted)
		hold()
		assert.Equal(t, len(f.effects.notes), 2)
		f.effects.notes[0](false)
		<-awaited // its own note, not the one after
		assert.Assert(t, e.Snapshot().UseNoted, "the second note is on its way")
		f.effects.notes[1](true)
		e.AwaitUse()
		hold()
		assert.Equal(t, len(f.effects.notes), 2)
	})
}

func TestANoteThatFailedIsTriedByTheNextUse(t *testing.T) {
	f := newFixture(t)
	e := f.running()
	_, err := f.Hold("t", e.ID().String())
	assert.NilError(t, err)
	f.effects.notes[0](false)
	e.Release()
	assert.Equal(t, len(f.effects.notes), 2)
}

func TestTombstones(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		e := f.running()
		id := e.ID().String()
		ask := func(tenant string) error {
			_, _, err := f.Find(tenant, id)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
			return err
		}
		e.Lose(registry.ReasonLost)
		e.Terminated(e.Tombstone()) // somebody else has seen its end too
		assert.ErrorContains(t, ask("t"), registry.ReasonLost)
		assert.Error(t, ask("u"), registry.NoSuchInstance().Error())
		time.Sleep(registry.TombstoneLife + 1)
		assert.Error(t, ask("t"), registry.NoSuchInstance().Error())
	})
}

func TestTheReasonForADestructionStaysWhenAComparisonNoticesItFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		e := f.running()
		time.Sleep(time.Minute)
		f.Expire(time.Now())
		assert.Equal(t, e.Snapshot().State, registry.Terminating)
		assert.Assert(t, e.Lose(registry.ReasonLost))
		_, _, err := f.Find("t", e.ID().String())
		assert.ErrorContains(t, err, registry.ReasonExpired)
	})
}

func TestTheOldestTombstonesGiveWay(t *testing.T) {
	f := newFixture(t)
	var ids []registry.ID
	for range registry.MaxTombstones + 1 {
		id := f.id("t", "s")
		ids = append(ids, id)
		f.Remember(registry.Tombstone{ID: id, At: time.Now(), Reason: registry.ReasonLost})
	}
	for _, c := range []struct {
		id   registry.ID
		told bool
	}{{ids[0], false}, {ids[1], true}, {ids[registry.MaxTombstones], true}} {
		_, _, err := f.Find("t", c.id.String())
		assert.Equal(t, strings.Contains(err.Error(), registry.ReasonLost), c.told, c.id.String())
	}
}
