package postgres_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/agreement"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func generationsAreAgreed(t *testing.T, url string) {
	all := brokers(t, url, "a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	for n, s := range all {
		first, err := s.First(t.Context(), []byte{'1', byte(n)})
		assert.NilError(t, err)
		assert.Check(t, is.DeepEqual(first.Text, []byte{'1', 0}), "the first is everybody's")
		assert.NilError(t, s.Joined(t.Context(), 1))
	}
	propose := func(behind int64, text string) agreement.Generation {
		t.Helper()
		g, err := a.Propose(t.Context(), behind, []byte(text), time.Minute)
		assert.NilError(t, err)
		return g
	}
	decide := func(id int64, state agreement.State, reason string) {
		t.Helper()
		g, err := b.Decide(t.Context(), id)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(g.State, state))
		assert.Check(t, is.Equal(g.Reason, reason))
	}

	// All agree.
	second := propose(1, "2")
	decide(second.ID, agreement.Open, "")
	_, err := b.Propose(t.Context(), 1, []byte("other"), time.Minute)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConflict), "one at a time")
	_, proposed, err := b.Look(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Equal(string(proposed.Text), "2"))
	assert.NilError(t, b.Vote(t.Context(), second.ID, ""))
	decide(second.ID, agreement.Open, "")
	assert.NilError(t, c.Vote(t.Context(), second.ID, ""))
	decide(second.ID, agreement.Committed, "")
	current, proposed, err := c.Look(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Equal(current.Number, int64(2)))
	assert.Check(t, is.Equal(proposed.ID, int64(0)))

	// One refuses, and nothing changes that.
	_, err = a.Propose(t.Context(), 1, []byte("late"), time.Minute)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConflict), "behind what was")
	third := propose(2, "3")
	assert.NilError(t, b.Vote(t.Context(), third.ID, "no plugin"))
	decide(third.ID, agreement.Refused, "broker b refuses it: no plugin")
	assert.NilError(t, c.Vote(t.Context(), third.ID, ""))
	decide(third.ID, agreement.Refused, "broker b refuses it: no plugin")

	// Who does not answer in time keeps all from it, and whoever asks decides that.
	fourth := propose(2, "4")
	assert.NilError(t, a.Exec(t.Context(), `UPDATE sandbox_generation SET expires_at = now() - interval '1 second' WHERE id = $1`, fourth.ID))
	assert.NilError(t, b.Vote(t.Context(), fourth.ID, ""))
	decide(fourth.ID, agreement.Refused, "no answer in time from broker c")

	// The dead do not count: neither their refusal nor their silence.
	fifth := propose(2, "5")
	assert.NilError(t, b.Vote(t.Context(), fifth.ID, ""))
	c.Abandon()
	decide(fifth.ID, agreement.Open, "")
	assert.NilError(t, a.Exec(t.Context(), `UPDATE sandbox_broker SET expires_at = now() - interval '1 minute' WHERE id = 'c'`))
	decide(fifth.ID, agreement.Committed, "")

	// It is given up, and proposed again.
	sixth := propose(3, "6")
	g, err := a.Withdraw(t.Context(), sixth.ID, "given up")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(g.State, agreement.Refused))
	g, err = a.Withdraw(t.Context(), fifth.ID, "too late")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(g.State, agreement.Committed))
	assert.NilError(t, b.Left(t.Context()))
	seventh := propose(3, "7")
	decide(seventh.ID, agreement.Committed, "")
}
