package opensandbox_test

import (
	"context"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const stranger = "OPEN-SANDBOX-API-KEY: umbrella-token"

type snapped struct {
	ID, SandboxID, Name string
	Status              struct{ State string }
}

// keeps is a provider with snapshots.
func keeps(b *box) {
	b.SameID = ""
	b.Snapshots = &instancetest.Snapshots{Bytes: 10}
}

// keep makes a snapshot of the sandbox.
func (f *fixture) keep(body string, headers ...string) (made snapped) {
	f.t.Helper()
	a := f.do(http.MethodPost, "/v1/sandboxes/"+f.sandbox+"/snapshots", body, append(headers, apiKey)...).wants(http.StatusAccepted)
	a.decode(&made)
	assert.Equal(f.t, made.SandboxID, f.sandbox)
	assert.Equal(f.t, made.Status.State, "Ready")
	assert.Equal(f.t, a.Header.Get("Location"), "/opensandbox/v1/snapshots/"+made.ID)
	return made
}

func (f *fixture) snapshotsOf(key, query string) (ids []string) {
	f.t.Helper()
	var list struct {
		Items      []snapped
		Pagination struct{ TotalItems int }
	}
	f.do(http.MethodGet, "/v1/snapshots"+query, "", key).wants(http.StatusOK).decode(&list)
	for _, one := range list.Items {
		ids = append(ids, one.ID)
	}
	return ids
}

func TestASandboxGoesOnFromASnapshotOfItsTenant(t *testing.T) {
	f := start(t, keeps)
	one := f.keep("")
	f.do(http.MethodDelete, "/v1/sandboxes/"+f.sandbox, "", apiKey).wants(http.StatusNoContent)
	body := `{"snapshotId":"` + one.ID + `","metadata":{"a":"b"}}`
	f.do(http.MethodPost, "/v1/sandboxes", body, stranger).refuses(http.StatusNotFound, "SB013")
	f.do(http.MethodDelete, "/v1/snapshots/"+one.ID, "", stranger).refuses(http.StatusNotFound, "SB013")
	assert.Equal(t, len(f.snapshotsOf(stranger, "")), 0)
	var made struct {
		ID, SnapshotID string
		Image          *struct{}
		Entrypoint     []string
		Metadata       map[string]string
	}
	f.do(http.MethodPost, "/v1/sandboxes", body, apiKey).wants(http.StatusAccepted).decode(&made)
	f.do(http.MethodGet, "/v1/sandboxes/"+made.ID, "", apiKey).wants(http.StatusOK).decode(&made)
	assert.Equal(t, made.SnapshotID, one.ID)
	assert.Assert(t, made.Image == nil)
	assert.DeepEqual(t, made.Entrypoint, []string{"tail", "-f", "/dev/null"})
	assert.DeepEqual(t, made.Metadata, map[string]string{"a": "b"})
	info, err := f.service.Named(t.Context(), made.ID)
	assert.NilError(t, err)
	assert.Equal(t, info.From, one.ID)
	assert.DeepEqual(t, f.snapshotsOf(apiKey, "?sandboxId="+f.sandbox), []string{one.ID}) // also of one that has ended
	assert.Equal(t, len(f.snapshotsOf(apiKey, "?sandboxId="+made.ID)), 0)
	f.do(http.MethodDelete, "/v1/snapshots/"+one.ID, "", apiKey).wants(http.StatusNoContent)
	f.do(http.MethodPost, "/v1/sandboxes", body, apiKey).refuses(http.StatusNotFound, "SB013")
	assert.Equal(t, len(f.box.Kept()), 0)
}

func TestSnapshotsInPagesWithinTheQuota(t *testing.T) {
	f := start(t, keeps)
	var newest []string
	for _, key := range []string{"k0", "k1", "k2"} {
		newest = append([]string{f.keep(`{"name":"`+key+`"}`, "Idempotency-Key: "+key).ID}, newest...)
	}
	assert.Equal(t, f.keep(`{"name":"k0"}`, "Idempotency-Key: k0").ID, newest[2], "who asks again gets the same")
	f.do(http.MethodPost, "/v1/sandboxes/"+f.sandbox+"/snapshots", "{}", apiKey).refuses(http.StatusTooManyRequests, "SB008")
	assert.DeepEqual(t, f.snapshotsOf(apiKey, "?pageSize=2"), newest[:2])
	assert.DeepEqual(t, f.snapshotsOf(apiKey, "?pageSize=2&page=2"), newest[2:])
	assert.Equal(t, len(f.snapshotsOf(apiKey, "?page=2")), 0)
	assert.DeepEqual(t, f.snapshotsOf(apiKey, "?name=k1"), newest[1:2])
	assert.Equal(t, len(f.snapshotsOf(apiKey, "?state=Failed")), 0)
}

func TestSnapshotsOfTheBrokersOwnAPIAreNotTheDoors(t *testing.T) {
	f := start(t, keeps)
	who := tenant.Tenant{Name: "acme"}
	info, err := f.service.Named(t.Context(), f.sandbox)
	assert.NilError(t, err)
	made, _, err := f.kept.Make(t.Context(), who, info.ID.String(), snapshot.MakeRequest{})
	assert.NilError(t, err)
	assert.Equal(t, len(f.snapshotsOf(apiKey, "")), 0)
	f.do(http.MethodGet, "/v1/snapshots/"+made.ID, "", apiKey).refuses(http.StatusNotFound, "SB013")
	f.do(http.MethodDelete, "/v1/snapshots/"+made.ID, "", apiKey).refuses(http.StatusNotFound, "SB013")
	f.do(http.MethodPost, "/v1/sandboxes", `{"snapshotId":"`+made.ID+`"}`, apiKey).refuses(http.StatusNotFound, "SB013")
	_, err = f.kept.Get(who, made.ID)
	assert.NilError(t, err)
}

func TestASnapshotWhereThereIsNoneIsRefused(t *testing.T) {
	f := start(t)
	f.do(http.MethodPost, "/v1/sandboxes/"+f.sandbox+"/snapshots", "{}", apiKey).refuses(http.StatusNotImplemented, "SB015")
	g := start(t, keeps)
	g.box.ChangeSnapshots(func(s *instancetest.Snapshots) {
		s.OnSnapshot = func(context.Context, sdk.SnapshotRequest) error { return sdk.Errorf(sdk.CodeConflict, "it is paused") }
	})
	g.do(http.MethodPost, "/v1/sandboxes/"+g.sandbox+"/snapshots", "{}", apiKey).refuses(http.StatusConflict, "SB014")
	assert.Equal(t, len(g.snapshotsOf(apiKey, "")), 0)
}
