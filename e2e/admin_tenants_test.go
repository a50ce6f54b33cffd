package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// tenantAnswer is what an administrator is told of a tenant.
type tenantAnswer struct {
	Token   string
	TokenID string `json:"token_id"`
	Data    *shownTenant
	Reload  reloaded
}

type shownTenant struct {
	Name      string
	Providers []string
	Tokens    []struct{ ID string }
	Quota     map[string]float64
}

// tenantChange sends a change of tenants and expects this status.
func tenantChange(t *testing.T, b *harness.Broker, method, path, etag string, body map[string]any, status int) (a tenantAnswer) {
	t.Helper()
	answer := change(t, b, method, "/tenants"+path, etag, body)
	assert.Equal(t, answer.Status, status, "%s", answer.Body)
	answer.Into(t, &a)
	assert.Equal(t, answer.Header.Get("ETag"), `"`+a.Reload.Revision+`"`)
	assert.Equal(t, a.Reload.Result, "applied")
	return a
}

// letsIn expects a token to be one, or not.
func letsIn(t *testing.T, b *harness.Broker, token string, in bool) {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/execute", token, map[string]any{"language": "mock", "code": `{"stdout": "works"}`})
	assert.NilError(t, answer.Err)
	want := http.StatusOK
	if !in {
		want = http.StatusUnauthorized
	}
	assert.Equal(t, answer.Status, want, "%s", answer.Body)
}

func TestAnAdministratorAddsATenantAndChangesItsTokens(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	letsIn(t, b, "no-token-yet", false)
	added := tenantChange(t, b, http.MethodPost, "", "", map[string]any{
		"name": "late", "providers": []string{"mock"}, "quota": map[string]any{"max_concurrent": 3, "execution_seconds_per_day": "2h"},
	}, http.StatusCreated)
	letsIn(t, b, added.Token, true)
	assert.Check(t, is.DeepEqual(added.Data.Providers, []string{"mock"}))
	assert.Check(t, is.DeepEqual(added.Data.Quota, map[string]float64{
		"max_concurrent": 3, "execution_seconds_per_day": 7200, "max_snapshots": 20, "max_paused": 20, "max_snapshot_bytes": 10 << 30,
	}))
	assert.Check(t, is.Contains(fileOf(t, b), "# What Ada said"))

	second := tenantChange(t, b, http.MethodPost, "/late/tokens", "", nil, http.StatusCreated)
	letsIn(t, b, second.Token, true)
	letsIn(t, b, added.Token, true)
	assert.Equal(t, len(second.Data.Tokens), 2)
	third := tenantChange(t, b, http.MethodPost, "/late/tokens/"+added.TokenID+"/rotate", "", nil, http.StatusOK)
	letsIn(t, b, added.Token, false)
	letsIn(t, b, third.Token, true)
	tenantChange(t, b, http.MethodDelete, "/late/tokens/"+second.TokenID, "", nil, http.StatusOK)
	letsIn(t, b, second.Token, false)
	harness.Refused(t, change(t, b, http.MethodDelete, "/tenants/late/tokens/"+third.TokenID, "", nil), http.StatusConflict, "SB014")
	harness.Refused(t, change(t, b, http.MethodDelete, "/tenants/late/tokens/"+second.TokenID, "", nil), http.StatusNotFound, "SB013")

	var list struct{ Data []shownTenant }
	answer := b.Do(http.MethodGet, adminAPI+"/tenants", adminToken, nil)
	answer.Into(t, &list)
	assert.Equal(t, len(list.Data), 3)
	assert.Equal(t, list.Data[2].Tokens[0].ID, third.TokenID)
	for _, token := range []string{added.Token, second.Token, third.Token} {
		assert.Check(t, !strings.Contains(b.Log(), token) && !strings.Contains(fileOf(t, b), token) && !strings.Contains(string(answer.Body), token))
	}

	tenantChange(t, b, http.MethodDelete, "/late", "", nil, http.StatusOK)
	letsIn(t, b, third.Token, false)
	harness.Refused(t, b.Do(http.MethodGet, adminAPI+"/tenants/late", adminToken, nil), http.StatusNotFound, "SB013")
	neverRefused(t, b)
}

func TestAnAdministratorChangesWhatATenantMayUse(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, "provider \"mock\" {}\nprovider \"other\" {\n  plugin = \"mock\"\n}\nproviders { active = \"mock\" }\n")
	seen := b.Do(http.MethodGet, adminAPI+"/tenants/acme", adminToken, nil)
	etag := seen.Header.Get("ETag")
	changed := tenantChange(t, b, http.MethodPatch, "/acme", etag, map[string]any{"providers": []string{"other"}, "quota": map[string]any{"max_instances": 5}}, http.StatusOK)
	assert.Check(t, is.DeepEqual(changed.Data.Providers, []string{"other"}))
	assert.Equal(t, b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "works"}`}).Provider, "other")
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": "{}", "provider": "mock"}), http.StatusForbidden, "SB012")

	// Who has seen what was before must look again.
	harness.Refused(t, change(t, b, http.MethodPatch, "/tenants/acme", etag, map[string]any{"providers": []string{}}), http.StatusConflict, "SB014")
	tenantChange(t, b, http.MethodPatch, "/acme", `"`+changed.Reload.Revision+`"`, map[string]any{"providers": []string{}, "quota": map[string]any{"max_instances": nil}}, http.StatusOK)
	assert.Equal(t, b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "works"}`}).Provider, "mock")

	before := fileOf(t, b)
	p := harness.Refused(t, change(t, b, http.MethodPatch, "/tenants/acme", "", map[string]any{"providers": []string{"absent"}}), http.StatusBadRequest, "SB002")
	assert.Equal(t, p.Field, "providers")
	p = harness.Refused(t, change(t, b, http.MethodPatch, "/tenants/acme", "", map[string]any{"quota": map[string]any{"max_cpus": "two"}}), http.StatusBadRequest, "SB002")
	assert.Equal(t, p.Field, "quota.max_cpus")
	harness.Refused(t, change(t, b, http.MethodPost, "/tenants", "", map[string]any{"name": "acme"}), http.StatusConflict, "SB014")
	harness.Refused(t, change(t, b, http.MethodPost, "/tenants", "", map[string]any{"name": "No Name"}), http.StatusUnprocessableEntity, "SB010")
	assert.Equal(t, fileOf(t, b), before)
	for _, path := range []string{"/tenants", "/tenants/acme", "/instances"} {
		harness.Refused(t, b.Do(http.MethodGet, adminAPI+path, harness.Token, nil), http.StatusForbidden, "SB012")
	}
	neverRefused(t, b)
}

func TestWhoGetsTheNameOfARemovedTenantGetsNothingElse(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	body, key := map[string]any{"session_id": "left"}, map[string]string{"Idempotency-Key": "first"}
	answer := b.DoWith(http.MethodPost, "/api/v1/instances", harness.OtherToken, body, key)
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var left createdInstance
	answer.Into(t, &left)
	running := make(chan harness.Answer, 1)
	go func() {
		running <- b.Do(http.MethodPost, "/api/v1/execute", harness.OtherToken, map[string]any{"language": "mock", "session_id": "left", "code": `{"hang": true}`, "timeout": 90})
	}()
	var list struct {
		Data []struct {
			ID, Tenant string
			Executions int
		}
	}
	runs := func() bool {
		b.Do(http.MethodGet, adminAPI+"/instances?tenant=rival", adminToken, nil).Into(t, &list)
		return len(list.Data) == 1 && list.Data[0].Executions == 1
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if runs() {
			return poll.Success()
		}
		return poll.Continue("%v", list)
	}, poll.WithTimeout(2*time.Minute))
	tenantChange(t, b, http.MethodDelete, "/rival", "", nil, http.StatusOK)
	ended := <-running
	var e harness.Execution
	ended.Into(t, &e)
	assert.Equal(t, e.Status, "cancelled")
	assert.Check(t, is.Contains(string(ended.Body), "the tenant was removed"))

	next := tenantChange(t, b, http.MethodPost, "", "", map[string]any{"name": "rival"}, http.StatusCreated).Token
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+left.ID, next, nil), http.StatusNotFound, "SB013")
	seen := b.Do(http.MethodGet, "/api/v1/instances", next, nil)
	assert.Equal(t, seen.Status, http.StatusOK)
	assert.Check(t, !strings.Contains(string(seen.Body), left.ID), "%s", seen.Body)
	again := b.DoWith(http.MethodPost, "/api/v1/instances", next, body, key)
	assert.Equal(t, again.Status, http.StatusCreated, "%s", again.Body)
	assert.Equal(t, again.Header.Get("Idempotency-Replayed"), "")
	var fresh createdInstance
	again.Into(t, &fresh)
	assert.Check(t, fresh.ID != left.ID)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		b.Do(http.MethodGet, adminAPI+"/instances", adminToken, nil).Into(t, &list)
		if len(list.Data) == 1 && list.Data[0].ID == fresh.ID {
			return poll.Success()
		}
		return poll.Continue("%v", list)
	}, poll.WithTimeout(2*time.Minute))
}
