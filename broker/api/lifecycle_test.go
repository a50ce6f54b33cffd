package api_test

import (
	"context"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func (f *fixture) create(body string) (created client.Instance) {
	f.t.Helper()
	f.do(http.MethodPost, "/api/v1/instances", body).wants(http.StatusCreated).decode(&created)
	return created
}

func TestPauseAndResume(t *testing.T) {
	f := start(t)
	f.provider.OnPause = func(context.Context, string, bool) error { return nil }
	made := f.create(`{"session_id": "s", "labels": {"team": "x"}}`)
	assert.DeepEqual(t, made.Labels, map[string]string{"team": "x"})
	for _, step := range []struct{ verb, state string }{{"pause", "paused"}, {"pause", "paused"}, {"resume", "running"}} {
		var i client.Instance
		f.do(http.MethodPost, "/api/v1/instances/"+made.ID+"/"+step.verb, "").wants(http.StatusOK).decode(&i)
		assert.Equal(t, i.State, step.state)
	}
	p := f.do(http.MethodGet, "/api/v1/instances/"+made.ID+"/metrics", "").problem(http.StatusNotImplemented, "SB015")
	assert.Equal(t, p.Capability, "metrics")
	assert.Equal(t, p.Provider, "first")
	f.do(http.MethodPost, "/api/v1/instances/acme:s:none/pause", "").problem(http.StatusNotFound, "SB013")
}

func TestInstancesAreListedByTheirLabels(t *testing.T) {
	f := start(t)
	first := f.create(`{"session_id": "a", "labels": {"team": "x"}}`)
	f.create(`{"session_id": "b"}`)
	list := func(query string) (list client.InstanceList) {
		t.Helper()
		f.do(http.MethodGet, "/api/v1/instances"+query, "").wants(http.StatusOK).decode(&list)
		return list
	}
	assert.Equal(t, len(list("").Instances), 2)
	assert.Equal(t, len(list("?label=team=x").Instances), 1)
	assert.Equal(t, len(list("?label=team%3Dx&session_id=b").Instances), 0)
	assert.Equal(t, list("?limit=1").Next, first.ID)
	rest := list("?limit=1&after=" + first.ID)
	assert.Equal(t, len(rest.Instances), 1)
	assert.Equal(t, rest.Next, "")
	for query, field := range map[string]string{
		"?label=team": "label", "?label=a=1&label=a=2": "label", "?limit=0": "limit", "?limit=1001": "limit", "?page=2": "page",
	} {
		assert.Equal(t, f.do(http.MethodGet, "/api/v1/instances"+query, "").problem(http.StatusUnprocessableEntity, "SB010").Field, field)
	}
}

// unsettled are instances of which one of an earlier process, of the session "left", has not
// been heard of yet.
type unsettled struct{ *instance.Service }

func (unsettled) Settled(_ context.Context, who tenant.Tenant, session, frontDoor string) []instance.Info {
	if who.Name != "acme" || session != "left" || frontDoor != "" {
		return nil
	}
	return []instance.Info{{}}
}

// That a session has no instance is not said before that is known.
func TestASessionIsNotSaidToBeEmptyAfterARestart(t *testing.T) {
	f := start(t, func(o *api.Options, f *fixture) { o.Instances = unsettled{f.service} })
	get := func(query string) answer { return f.do(http.MethodGet, "/api/v1/instances"+query, "") }
	p := get("?session_id=left").problem(http.StatusServiceUnavailable, "SB009")
	assert.Assert(t, cmp.Contains(p.Detail, "Try again"))
	assert.Equal(t, get("?session_id=left").Header.Get("Retry-After"), "1")
	get("").wants(http.StatusOK)
	get("?session_id=other").wants(http.StatusOK)
	f.create(`{"session_id": "left"}`)
	get("?session_id=left").wants(http.StatusOK)
}
