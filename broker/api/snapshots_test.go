package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const adminSnapshots = "/api/admin/sandbox/snapshots"

// withSnapshots has the first provider keep instances as they are.
func withSnapshots(opts *api.Options, f *fixture) {
	f.provider.Snapshots = &instancetest.Snapshots{Bytes: 10}
	state, err := store.Open(f.t.TempDir()+"/state.db", store.Options{})
	assert.NilError(f.t, err)
	quotas, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Snapshots: 3}}}})
	assert.NilError(f.t, err)
	snapshots := snapshot.NewService(snapshot.Options{
		Instances: f.service, Providers: func() []instance.Provider { return instance.Reachable(f.service) },
		Quotas: quotas, Journal: snapshot.NewStoreJournal(state), Secret: make([]byte, 32), Logger: hclog.NewNullLogger(),
		Limits: snapshot.Limits{DefaultTTL: 3600e9, MaxTTL: 7200e9, Timeout: 60e9}, Known: func(string) bool { return true },
	})
	f.t.Cleanup(func() {
		snapshots.Close()
		quotas.Close()
		assert.Check(f.t, state.Close())
	})
	opts.Snapshots = snapshots
}

func (f *fixture) keep(id, body string, headers ...string) (made client.Snapshot) {
	f.t.Helper()
	text := f.do(http.MethodPost, "/api/v1/instances/"+id+"/snapshots", body, headers...).wants(http.StatusCreated).text
	assert.NilError(f.t, json.Unmarshal([]byte(text), &made))
	return made
}

func TestSnapshotsOverREST(t *testing.T) {
	f := start(t, withAdmin, withSnapshots)
	original := f.create(`{"session_id": "original"}`)
	first := f.keep(original.ID, `{"name": "n", "labels": {"a": "b"}, "ttl": 60}`)
	assert.Assert(t, first.Name == "n" && first.Labels["a"] == "b" && first.Bytes == 10 && first.Memory && first.Provider == "first")
	assert.Equal(t, first.ExpiresAt.Sub(first.CreatedAt).Round(1e9).Seconds(), 60.0)
	second := f.keep(original.ID, `{}`)
	var list client.SnapshotList
	get := func(query string) client.SnapshotList {
		t.Helper()
		list = client.SnapshotList{}
		assert.NilError(t, json.Unmarshal([]byte(f.do(http.MethodGet, "/api/v1/snapshots"+query, "").wants(http.StatusOK).text), &list))
		return list
	}
	assert.Equal(t, len(get("").Snapshots), 2)
	page := get("?limit=1")
	assert.Equal(t, page.Next, page.Snapshots[0].ID)
	assert.Equal(t, len(get("?limit=1&after="+page.Next).Snapshots), 1)
	assert.DeepEqual(t, get("?label=a=b").Snapshots, []client.Snapshot{first})
	assert.Equal(t, len(get("?instance_id="+original.ID).Snapshots), 2)
	f.do(http.MethodGet, "/api/v1/snapshots?label=a", "").problem(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodPost, "/api/v1/instances/"+original.ID+"/snapshots", `{"ttl": 7201}`).problem(http.StatusUnprocessableEntity, "SB010")

	copied := f.create(fmt.Sprintf(`{"snapshot": %q, "session_id": "copy"}`, first.ID))
	assert.Equal(t, copied.From, first.ID)
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id": "copy", "snapshot": "`+second.ID+`"}`).problem(http.StatusConflict, "SB014")
	f.do(http.MethodPost, "/api/v1/instances", `{"snapshot": "snap-nothing"}`).problem(http.StatusNotFound, "SB013")
	f.do(http.MethodPost, "/api/v1/instances", `{"snapshot": "`+first.ID+`", "provider": "second"}`).problem(http.StatusUnprocessableEntity, "SB010")
	onSecond := f.create(`{"provider": "second"}`)
	f.do(http.MethodPost, "/api/v1/instances/"+onSecond.ID+"/snapshots", `{}`).problem(http.StatusNotImplemented, "SB015")

	f.do(http.MethodDelete, "/api/v1/snapshots/"+first.ID, "").wants(http.StatusNoContent)
	f.do(http.MethodDelete, "/api/v1/snapshots/"+first.ID, "").problem(http.StatusNotFound, "SB013")
	f.do(http.MethodGet, "/api/v1/snapshots/"+first.ID, "").problem(http.StatusNotFound, "SB013")
	f.do(http.MethodGet, "/api/v1/snapshots/"+second.ID, "").wants(http.StatusOK)
}

func TestAForkOverREST(t *testing.T) {
	f := start(t, withSnapshots)
	original := f.create(`{}`)
	var fork client.Fork
	text := f.do(http.MethodPost, "/api/v1/instances/"+original.ID+"/fork", `{"session_ids": ["a", "b"], "ttl": 60}`).wants(http.StatusCreated).text
	assert.NilError(t, json.Unmarshal([]byte(text), &fork))
	assert.Equal(t, len(fork.Instances), 2)
	for i, session := range []string{"a", "b"} {
		assert.Assert(t, fork.Instances[i].SessionID == session && fork.Instances[i].From == original.ID && fork.Instances[i].TTL == 60)
	}
	assert.NilError(t, json.Unmarshal([]byte(f.do(http.MethodPost, "/api/v1/instances/"+original.ID+"/fork", `{}`).wants(http.StatusCreated).text), &fork))
	assert.Equal(t, len(fork.Instances), 1)
	for _, wrong := range []string{`{"count": 65}`, `{"count": 3, "session_ids": ["c", "d"]}`, `{"session_ids": ["c", "c"]}`, `{"session_ids": ["not/a/session"]}`} {
		f.do(http.MethodPost, "/api/v1/instances/"+original.ID+"/fork", wrong).problem(http.StatusUnprocessableEntity, "SB010")
	}
	f.do(http.MethodPost, "/api/v1/instances/"+original.ID+"/fork", `{}`, umbrellaToken).problem(http.StatusNotFound, "SB013")
	f.do(http.MethodPost, "/api/v1/instances/acme:a:aaaaaaaaaaaaaaaaaaaa/fork", `{}`).problem(http.StatusNotFound, "SB013")
}

func TestTenantsHaveNoBusinessWithTheSnapshotsOfAll(t *testing.T) {
	f := start(t, withAdmin, withSnapshots)
	made := f.keep(f.create(`{}`).ID, `{}`)
	f.do(http.MethodGet, adminSnapshots, "").problem(http.StatusForbidden, "SB012")
	f.do(http.MethodDelete, adminSnapshots+"/"+made.ID, "").problem(http.StatusForbidden, "SB012")
	f.do(http.MethodGet, "/api/v1/snapshots/"+made.ID, "", umbrellaToken).problem(http.StatusNotFound, "SB013")
	all := f.do(http.MethodGet, adminSnapshots, "", adminToken).wants(http.StatusOK)
	assert.Assert(t, strings.Contains(all.text, `"tenant":"acme"`) && strings.Contains(all.text, made.ID))
	assert.Equal(t, f.do(http.MethodGet, adminSnapshots+"?tenant=umbrella", "", adminToken).wants(http.StatusOK).text, `{"data":[]}`)
	f.do(http.MethodDelete, adminSnapshots+"/"+made.ID, "", adminToken).wants(http.StatusNoContent)
	f.do(http.MethodGet, "/api/v1/snapshots/"+made.ID, "").problem(http.StatusNotFound, "SB013")
}
