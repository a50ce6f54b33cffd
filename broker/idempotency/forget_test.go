package idempotency_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

func TestTheAnswersOfARemovedTenantAreNobodysAnyMore(t *testing.T) {
	s, err := store.Open(scratch.Dir(t)+"/state.db", store.Options{})
	assert.NilError(t, err)
	defer func() { assert.Check(t, s.Close()) }()
	a, err := idempotency.Open(s)
	assert.NilError(t, err)
	begin := func(id idempotency.ID) idempotency.State {
		state, _, err := a.Begin(t.Context(), id, idempotency.Fingerprint{1})
		assert.NilError(t, err)
		return state
	}
	answer := &idempotency.Answer{Status: 200, Body: []byte("x")}
	keep := func(id idempotency.ID) {
		assert.Equal(t, begin(id), idempotency.Fresh)
		assert.NilError(t, a.End(t.Context(), id, answer))
	}
	keep(idempotency.ID{Tenant: "acme", Since: 1, Key: "kept"})
	keep(idempotency.ID{Tenant: "umbrella", Since: 1, Key: "kept"})
	keep(idempotency.ID{Key: "kept"})
	late := idempotency.ID{Tenant: "acme", Since: 1, Key: "late"}
	assert.Equal(t, begin(late), idempotency.Fresh)

	assert.NilError(t, a.Forget(t.Context(), func(tenant string) bool { return tenant == "umbrella" }))
	next := idempotency.ID{Tenant: "acme", Since: 2, Key: "late"}
	assert.Equal(t, begin(next), idempotency.Fresh)
	assert.NilError(t, a.End(t.Context(), late, answer), "the request of the one before ends, and is kept for nobody")
	assert.NilError(t, a.End(t.Context(), next, nil))
	assert.Equal(t, begin(next), idempotency.Fresh)
	assert.Equal(t, begin(idempotency.ID{Tenant: "acme", Since: 2, Key: "kept"}), idempotency.Fresh)
	assert.Equal(t, begin(idempotency.ID{Tenant: "umbrella", Since: 1, Key: "kept"}), idempotency.Answered)
	assert.Equal(t, begin(idempotency.ID{Key: "kept"}), idempotency.Answered)
}
