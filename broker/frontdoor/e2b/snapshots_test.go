package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type snapped struct {
	SnapshotID string
	Names      []string
}

// keep makes a snapshot of the sandbox.
func (f *fixture) keep(headers ...string) (made snapped) {
	f.t.Helper()
	f.do(http.MethodPost, "/sandboxes/"+f.sandbox.SandboxID+"/snapshots", "{}", append(headers, apiKey)...).wants(http.StatusCreated).decode(&made)
	assert.Assert(f.t, made.Names != nil && len(made.Names) == 0)
	return made
}

func (f *fixture) snapshotsOf(key, query string) (ids []string, next string) {
	f.t.Helper()
	var all []snapped
	a := f.do(http.MethodGet, "/snapshots"+query, "", key).wants(http.StatusOK)
	a.decode(&all)
	for _, one := range all {
		ids = append(ids, one.SnapshotID)
	}
	return ids, a.Header.Get("X-Next-Token")
}

func TestASandboxGoesOnFromASnapshotOfItsTenant(t *testing.T) {
	f := start(t)
	one := f.keep()
	f.do(http.MethodDelete, "/sandboxes/"+f.sandbox.SandboxID, "", apiKey).wants(http.StatusNoContent)
	body := `{"templateID":"` + one.SnapshotID + `","metadata":{"a":"b"}}`
	f.do(http.MethodPost, "/v2/sandboxes", body, another).refuses(http.StatusNotFound, sdk.CodeNotFound)
	f.do(http.MethodDelete, "/templates/"+one.SnapshotID, "", another).refuses(http.StatusNotFound, sdk.CodeNotFound)
	ids, _ := f.snapshotsOf(another, "")
	assert.Equal(t, len(ids), 0)
	made := f.create(body)
	assert.Equal(t, made.TemplateID, one.SnapshotID)
	info, err := f.service.Named(t.Context(), made.SandboxID)
	assert.NilError(t, err)
	assert.Equal(t, info.From, one.SnapshotID)
	ids, _ = f.snapshotsOf(apiKey, "?sandboxID="+f.sandbox.SandboxID)
	assert.DeepEqual(t, ids, []string{one.SnapshotID}) // also of one that has ended
	ids, _ = f.snapshotsOf(apiKey, "?sandboxID="+made.SandboxID)
	assert.Equal(t, len(ids), 0)
	f.do(http.MethodDelete, "/templates/"+one.SnapshotID, "", apiKey).wants(http.StatusNoContent)
	f.do(http.MethodPost, "/v2/sandboxes", body, apiKey).refuses(http.StatusNotFound, sdk.CodeNotFound)
	assert.Equal(t, len(f.box.Kept()), 0)
}

func TestSnapshotsInPagesWithinTheQuota(t *testing.T) {
	f := start(t)
	var newest []string
	for n := range 3 {
		newest = append([]string{f.keep(fmt.Sprintf("Idempotency-Key: k%d", n)).SnapshotID}, newest...)
	}
	assert.Equal(t, f.keep("Idempotency-Key: k0").SnapshotID, newest[2], "who asks again gets the same")
	f.do(http.MethodPost, "/sandboxes/"+f.sandbox.SandboxID+"/snapshots", "{}", apiKey).refuses(http.StatusTooManyRequests, sdk.CodeQuotaExceeded)
	var seen []string
	for next := ""; ; {
		query := "?limit=1"
		if next != "" {
			query += "&nextToken=" + next
		}
		ids, more := f.snapshotsOf(apiKey, query)
		seen = append(seen, ids...)
		if next = more; next == "" {
			break
		}
	}
	assert.DeepEqual(t, seen, newest)
	ids, _ := f.snapshotsOf(apiKey, "?name="+newest[1])
	assert.DeepEqual(t, ids, newest[1:2])
}

func TestSnapshotsOfTheBrokersOwnAPIAreNotTheDoors(t *testing.T) {
	f := start(t)
	who := tenant.Tenant{Name: "acme"}
	info, err := f.service.Named(t.Context(), f.sandbox.SandboxID)
	assert.NilError(t, err)
	made, _, err := f.snapshots.Make(t.Context(), who, info.ID.String(), snapshot.MakeRequest{})
	assert.NilError(t, err)
	ids, _ := f.snapshotsOf(apiKey, "")
	assert.Equal(t, len(ids), 0)
	f.do(http.MethodDelete, "/templates/"+made.ID, "", apiKey).refuses(http.StatusNotFound, sdk.CodeNotFound)
	f.do(http.MethodPost, "/v2/sandboxes", `{"templateID":"`+made.ID+`"}`, apiKey).refuses(http.StatusNotFound, sdk.CodeNotFound)
	_, err = f.snapshots.Get(who, made.ID)
	assert.NilError(t, err)
}

func TestASnapshotStaysAtTheProviderOfTheDoor(t *testing.T) {
	f := start(t)
	one := f.keep()
	f.server.SetFrontDoors(map[string]frontdoor.Settings{"e2b": {Path: "/e2b", Provider: "second", Templates: map[string]string{"base": ""}}})
	f.do(http.MethodPost, "/v2/sandboxes", `{"templateID":"`+one.SnapshotID+`"}`, apiKey).refuses(http.StatusBadRequest, sdk.CodeInvalidRequest)
}

func TestASnapshotWhereThereIsNoneIsRefused(t *testing.T) {
	f := start(t, func(_ *api.Options, b *box) { b.Snapshots = nil })
	f.do(http.MethodPost, "/sandboxes/"+f.sandbox.SandboxID+"/snapshots", "{}", apiKey).refuses(http.StatusNotImplemented, sdk.CodeNotSupported)
	g := start(t)
	g.box.ChangeSnapshots(func(s *instancetest.Snapshots) {
		s.OnSnapshot = func(context.Context, sdk.SnapshotRequest) error { return sdk.Errorf(sdk.CodeConflict, "it is paused") }
	})
	g.do(http.MethodPost, "/sandboxes/"+g.sandbox.SandboxID+"/snapshots", "{}", apiKey).refuses(http.StatusConflict, sdk.CodeConflict)
	ids, _ := g.snapshotsOf(apiKey, "")
	assert.Equal(t, len(ids), 0)
}

func TestWhatASandboxReachesIsWhatItsClientSays(t *testing.T) {
	f := start(t)
	reaches := func(made created) *sdk.NetworkPolicy {
		t.Helper()
		info, err := f.service.Named(t.Context(), made.SandboxID)
		assert.NilError(t, err)
		lease, err := f.service.Lease(t.Context(), tenant.Tenant{Name: "acme"}, info.ID.String(), sdk.CapabilityNetwork)
		assert.NilError(t, err)
		defer lease.Release()
		return f.box.Network(lease.InstanceID)
	}
	assert.DeepEqual(t, reaches(f.sandbox), reach())
	narrow := f.create(`{"templateID":"base","network":{"allowOut":["A.example.com","192.0.2.7/32"],"denyOut":["0.0.0.0/0"]}}`)
	wanted := []sdk.NetworkRule{{Host: "a.example.com", Ports: []int{80, 443}}, {Host: "192.0.2.7", Ports: []int{443, 5432}, TCP: true, Private: true}}
	assert.DeepEqual(t, reaches(narrow).Rules, wanted)
	for _, body := range []string{`"allow_internet_access":false`, `"network":{"denyOut":["0.0.0.0/0","192.0.2.1"]}`} {
		assert.Assert(t, reaches(f.create(`{"templateID":"base",`+body+`}`)) == nil, body)
	}
	path := "/sandboxes/" + narrow.SandboxID + "/network"
	f.do(http.MethodPut, path, `{"allow_internet_access":false}`, another).refuses(http.StatusNotFound, sdk.CodeNotFound)
	f.do(http.MethodPut, path, `{"allowOut":["evil.example"],"denyOut":["0.0.0.0/0"]}`, apiKey).refuses(http.StatusForbidden, sdk.CodeNotAllowed)
	assert.DeepEqual(t, reaches(narrow).Rules, wanted)
	f.do(http.MethodPut, path, `{"denyOut":["0.0.0.0/0"]}`, apiKey).wants(http.StatusNoContent)
	assert.Assert(t, reaches(narrow) == nil)
	f.do(http.MethodPut, path, `{}`, apiKey).wants(http.StatusNoContent)
	assert.DeepEqual(t, reaches(narrow), reach())
}

func TestANetworkThatNobodyGovernsIsRefused(t *testing.T) {
	f := start(t, func(_ *api.Options, b *box) {
		b.Capabilities = []sdk.Capability{sdk.CapabilityCommands, sdk.CapabilityFiles}
	})
	f.do(http.MethodPost, "/v2/sandboxes", `{"templateID":"base","allow_internet_access":false}`, apiKey).refuses(http.StatusNotImplemented, sdk.CodeNotSupported)
	path := "/sandboxes/" + f.sandbox.SandboxID + "/network"
	f.do(http.MethodPut, path, `{"denyOut":["0.0.0.0/0"]}`, apiKey).refuses(http.StatusNotImplemented, sdk.CodeNotSupported)
	f.do(http.MethodPut, path, `{}`, apiKey).refuses(http.StatusNotImplemented, sdk.CodeNotSupported)
	// The operator says that there is none, whoever asks.
	f.server.SetFrontDoors(map[string]frontdoor.Settings{"e2b": {Path: "/e2b", Network: "deny", Templates: map[string]string{"base": ""}}})
	f.create(`{"templateID":"base","allow_internet_access":false}`)
	f.do(http.MethodPut, path, `{"denyOut":["0.0.0.0/0"]}`, apiKey).wants(http.StatusNoContent)
	f.do(http.MethodPut, path, `{"denyOut":["0.0.0.0/0"],"allowOut":["a.example.com"]}`, apiKey).refuses(http.StatusBadRequest, sdk.CodeInvalidRequest)
}
