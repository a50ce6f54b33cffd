package e2b_test

import (
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestForksGoOnWhereTheSandboxStands(t *testing.T) {
	f := start(t)
	original := f.create(`{"templateID":"data","timeout":600,"metadata":{"app":"mine"},"autoPause":true,"network":{"denyOut":["0.0.0.0/0"]}}`)
	path := "/sandboxes/" + original.SandboxID + "/fork"
	f.do(http.MethodPost, path, "{}", another).refuses(http.StatusNotFound, sdk.CodeNotFound)
	fork := func(body string, headers ...string) (ids []string) {
		t.Helper()
		var results []struct{ Sandbox created }
		f.do(http.MethodPost, path, body, append(headers, apiKey)...).wants(http.StatusCreated).decode(&results)
		for _, one := range results {
			assert.Equal(t, one.Sandbox.TemplateID, "data")
			assert.Assert(t, one.Sandbox.EnvdAccessToken != "" && one.Sandbox.TrafficAccessToken != "")
			ids = append(ids, one.Sandbox.SandboxID)
		}
		return ids
	}
	made := fork(`{"count":2,"timeout":60}`, "Idempotency-Key: k")
	assert.Equal(t, len(made), 2)
	assert.Assert(t, made[0] != made[1])
	for _, id := range made {
		info, err := f.service.Named(t.Context(), id)
		assert.NilError(t, err)
		assert.DeepEqual(t, info.Labels, map[string]string{"app": "mine"})
		assert.Assert(t, info.Fixed && info.PauseAtEnd && info.Network.None)
		left := time.Until(info.ExpiresAt)
		assert.Assert(t, left > 30*time.Second && left <= time.Minute, "%v", left)
		var detail struct{ SandboxID, TemplateID string }
		f.do(http.MethodGet, "/sandboxes/"+id, "", apiKey).wants(http.StatusOK).decode(&detail)
		assert.Equal(t, detail.TemplateID, "data")
	}
	assert.DeepEqual(t, fork(`{"count":2,"timeout":60}`, "Idempotency-Key: k"), made)
	assert.Equal(t, len(fork("")), 1)
	ids, _ := f.snapshotsOf(apiKey, "")
	assert.Equal(t, len(ids), 0, "none is left")
	assert.Equal(t, len(f.service.List(tenant.Tenant{Name: "acme"}, instance.ListRequest{FrontDoor: "e2b"}).Instances), 5)
}

func TestAForkWhereThereIsNoneIsRefused(t *testing.T) {
	f := start(t, func(_ *api.Options, b *box) { b.Snapshots = nil })
	f.do(http.MethodPost, "/sandboxes/"+f.sandbox.SandboxID+"/fork", "{}", apiKey).refuses(http.StatusNotImplemented, sdk.CodeNotSupported)
	g := start(t)
	g.do(http.MethodPost, "/sandboxes/"+g.sandbox.SandboxID+"/pause", "{}", apiKey).wants(http.StatusNoContent)
	g.do(http.MethodPost, "/sandboxes/"+g.sandbox.SandboxID+"/fork", "{}", apiKey).refuses(http.StatusConflict, sdk.CodeConflict)
}
