package idempotency_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// impatient is a store whose caller goes away, if late, while the disk is still at work
// on what it asked for.
type impatient struct {
	*store.Store
	late bool
}

func (s *impatient) Update(ctx context.Context, change func(tx store.Tx) error) error {
	if !s.late {
		return s.Store.Update(ctx, change)
	}
	if err := s.Store.Update(ctx, change); err != nil {
		return err
	}
	return context.Canceled
}

func TestWhatIsKeptCountsWhenItsCallerHasGone(t *testing.T) {
	for name, test := range map[string]struct {
		lateBegin, lateEnd bool
		answer             *idempotency.Answer
		more               bool // a second key has room then
	}{
		"a key":                       {lateBegin: true},
		"an answer in place of a key": {lateEnd: true, answer: &idempotency.Answer{Status: 200}},
		"a key that is free again":    {lateEnd: true, more: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &impatient{Store: newStore(t)}
			a := open(t, s)
			a.Bound(1, 1000)

			s.late = test.lateBegin
			_, _, err := a.Begin(t.Context(), key, one)
			assert.Equal(t, err != nil, test.lateBegin)
			if test.lateEnd {
				s.late = true
				assert.ErrorIs(t, a.End(t.Context(), key, test.answer), context.Canceled)
			}
			s.late = false

			again := open(t, s) // which counts anew
			again.Bound(1, 1000)
			for _, counted := range []*idempotency.Answers{a, again} {
				_, _, err = counted.Begin(t.Context(), idempotency.ID{Tenant: "acme", Key: "more"}, one)
				if !test.more {
					assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
					continue
				}
				assert.NilError(t, err)
				assert.NilError(t, counted.End(t.Context(), idempotency.ID{Tenant: "acme", Key: "more"}, nil))
			}
		})
	}
}

func TestAKeyOfACallerThatHasGoneIsNotCountedTwiceOnItsWayOut(t *testing.T) {
	s := &impatient{Store: newStore(t)}
	a := open(t, s)
	a.Bound(2, 1000)
	s.late = true
	_, _, err := a.Begin(t.Context(), key, one)
	assert.ErrorIs(t, err, context.Canceled)
	s.late = false

	// Its end is counted as that of a key which was: another one's does not go with it.
	expect(t, a, idempotency.ID{Tenant: "acme", Key: "stays"}, one, idempotency.Fresh)
	expect(t, a, key, one, idempotency.Interrupted)
	assert.NilError(t, a.End(t.Context(), key, nil))
	expect(t, a, idempotency.ID{Tenant: "acme", Key: "second"}, one, idempotency.Fresh)
	_, _, err = a.Begin(t.Context(), idempotency.ID{Tenant: "acme", Key: "third"}, one)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
}

func TestTheKeysOfAGroupAreBoundedTogether(t *testing.T) {
	s := newStore(t)
	a := open(t, s)
	a.BoundGroup(2)
	member := func(key, group string) idempotency.ID {
		return idempotency.ID{Tenant: "acme", Key: group + key, Group: group}
	}
	for _, key := range []string{"1", "2"} {
		id := member(key, "box")
		expect(t, a, id, one, idempotency.Fresh)
		assert.NilError(t, a.End(t.Context(), id, &idempotency.Answer{Status: 200}))
	}
	for range 2 {
		_, _, err := a.Begin(t.Context(), member("3", "box"), one)
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
		expect(t, a, member("1", "box"), one, idempotency.Answered)
		for _, other := range []idempotency.ID{member("1", "other"), {Tenant: "umbrella", Key: "1", Group: "box"}, {Tenant: "acme", Key: "none"}} {
			expect(t, a, other, one, idempotency.Fresh)
			assert.NilError(t, a.End(t.Context(), other, nil))
		}
		a = open(t, s) // which counts anew
		a.BoundGroup(2)
	}
	expect(t, a, member("4", "other"), one, idempotency.Fresh)
	assert.NilError(t, a.Forget(t.Context(), func(string) bool { return false }))
	expect(t, a, member("3", "box"), one, idempotency.Fresh)
}

func TestWhatIsOutdatedMakesRoom(t *testing.T) {
	s := inTurnOf(t)
	synctest.Test(t, func(t *testing.T) {
		a := open(t, s)
		a.Bound(2, 1000)
		for _, key := range []string{"1", "2"} {
			id := idempotency.ID{Tenant: "acme", Key: key}
			expect(t, a, id, one, idempotency.Fresh)
			assert.NilError(t, a.End(t.Context(), id, &idempotency.Answer{Status: 200}))
		}
		full := idempotency.ID{Tenant: "acme", Key: "3"}
		time.Sleep(idempotency.Life)
		_, _, err := a.Begin(t.Context(), full, one)
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
		time.Sleep(time.Second)
		expect(t, a, full, one, idempotency.Fresh)
	})
}

func TestAKeyIsFoundAsItIs(t *testing.T) {
	s := newStore(t)
	a := open(t, s)
	find := func(a *idempotency.Answers, want idempotency.State) idempotency.Answer {
		t.Helper()
		state, answer, err := a.Find(key)
		assert.NilError(t, err)
		assert.Equal(t, state, want)
		return answer
	}
	find(a, idempotency.Fresh)
	expect(t, a, key, one, idempotency.Fresh)
	find(a, idempotency.Running)
	find(open(t, crashed(t, s)), idempotency.Interrupted)
	want := idempotency.Answer{Status: 200, Body: []byte("x")}
	assert.NilError(t, a.End(t.Context(), key, &want))
	assert.DeepEqual(t, find(a, idempotency.Answered), want)
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		return tx.Put(store.Answers, key.String(), []byte("{"))
	}))
	find(a, idempotency.Interrupted)
}

// away is a store whose database does not answer what it is asked for.
type away struct{ store.State }

func (a away) View(read func(tx store.Tx) error) error {
	return a.State.View(func(tx store.Tx) error { return read(silent{tx}) })
}

type silent struct{ store.Tx }

func (silent) Get(store.Bucket, string) ([]byte, error) {
	return nil, sdk.Errorf(sdk.CodeUnavailable, "the database is away")
}

// Of a key that cannot be looked up nobody may say that its request was cut off: it may have
// been answered, and what was cut off may be done once more.
func TestAKeyThatCannotBeLookedUpIsNotTakenForOneThatWasCutOff(t *testing.T) {
	s := newStore(t)
	a := open(t, s)
	expect(t, a, key, one, idempotency.Fresh)
	assert.NilError(t, a.End(t.Context(), key, &idempotency.Answer{Status: 200}))
	a = open(t, away{s})
	_, _, err := a.Begin(t.Context(), key, one)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	_, _, err = a.Find(key)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	expect(t, open(t, s), key, one, idempotency.Answered)
	_, _, err = a.Begin(t.Context(), key, one)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "and the key is free again")
}
