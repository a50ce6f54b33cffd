package idempotency_test

import (
	"encoding/json"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

func TestSecretsThatWereKeptAreTakenOut(t *testing.T) {
	s, err := store.Open(t.TempDir()+"/state.db", store.Options{})
	assert.NilError(t, err)
	defer func() { assert.Check(t, s.Close()) }()
	a, err := idempotency.Open(s)
	assert.NilError(t, err)
	for id, body := range map[idempotency.ID]string{
		{Key: "token"}:                     `{"message":"Tenant added","token":"sbk_secret","token_id":"ab"}`,
		{Tenant: "acme", Key: "link"}:      `{"url":"http://x/preview/secret/","path":"/preview/secret/","port":80,"expires_at":"2026-11-22T12:00:00Z"}`,
		{Tenant: "acme", Key: "execution"}: `{"result":{"token":"of the tenant's own program"}}`,
		{Tenant: "acme", Key: "text"}:      `no JSON`,
	} {
		state, _, err := a.Begin(t.Context(), id, idempotency.Fingerprint{1})
		assert.NilError(t, err)
		assert.Equal(t, state, idempotency.Fresh)
		assert.NilError(t, a.End(t.Context(), id, &idempotency.Answer{Status: 201, Body: []byte(body)}))
	}
	assert.NilError(t, s.Update(t.Context(), idempotency.PurgeSecrets))

	a, err = idempotency.Open(s)
	assert.NilError(t, err)
	state, answer, err := a.Begin(t.Context(), idempotency.ID{Key: "token"}, idempotency.Fingerprint{1})
	assert.NilError(t, err)
	assert.Equal(t, state, idempotency.Answered, "a second token must not be made")
	var body map[string]any
	assert.NilError(t, json.Unmarshal(answer.Body, &body))
	assert.DeepEqual(t, body, map[string]any{"message": "Tenant added", "token": "", "token_id": "ab"})
	for key, want := range map[string]idempotency.State{"link": idempotency.Fresh, "execution": idempotency.Answered, "text": idempotency.Answered} {
		state, _, err := a.Begin(t.Context(), idempotency.ID{Tenant: "acme", Key: key}, idempotency.Fingerprint{1})
		assert.NilError(t, err)
		assert.Equal(t, state, want, key)
	}
}
