package idempotency_test

import (
	"context"
	"testing"

	"go.etcd.io/bbolt"
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

func (s *impatient) Update(ctx context.Context, change func(tx *bbolt.Tx) error) error {
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
