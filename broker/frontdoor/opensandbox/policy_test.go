package opensandbox_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// governs is a provider that says what its instances reach.
func governs(b *box) {
	b.SameID = ""
	b.Capabilities = append(b.Capabilities, sdk.CapabilityNetwork)
}

// reaches is what a sandbox was given.
func (f *fixture) reaches(id string) *sdk.NetworkPolicy {
	f.t.Helper()
	info, err := f.service.Named(f.t.Context(), id)
	assert.NilError(f.t, err)
	lease, err := f.service.Lease(f.t.Context(), tenant.Tenant{Name: "acme"}, info.ID.String(), sdk.CapabilityNetwork)
	assert.NilError(f.t, err)
	defer lease.Release()
	return f.box.Network(lease.InstanceID)
}

func hosts(p *sdk.NetworkPolicy) (all []string) {
	if p != nil {
		for _, rule := range p.Rules {
			all = append(all, rule.Host)
		}
	}
	return all
}

func TestWhatASandboxReachesIsWhatItsClientSays(t *testing.T) {
	f := start(t, governs)
	assert.DeepEqual(t, hosts(f.reaches(f.sandbox)), hosts(reach()))
	makes := func(policy string) (id string) {
		t.Helper()
		var made struct{ ID string }
		f.do(http.MethodPost, "/v1/sandboxes", `{"image":{"uri":"python:3.12"},"networkPolicy":`+policy+`}`, apiKey).wants(http.StatusAccepted).decode(&made)
		return made.ID
	}
	assert.Assert(t, f.reaches(makes(`{"defaultAction":"deny"}`)) == nil)
	narrow := makes(`{"defaultAction":"deny","egress":[{"action":"allow","target":"a.example.com"}]}`)
	path := "/v1/sandboxes/" + narrow + "/proxy/18080/policy"
	policy := func(action, rules string) string {
		return `{"status":"ok","mode":"` + action + `_all","enforcementMode":"gateway","policy":{"defaultAction":"` + action + `","egress":[` + rules + `]}}`
	}
	for _, step := range []struct{ method, body, policy string }{
		{http.MethodGet, "", `{"action":"allow","target":"a.example.com"}`},
		{http.MethodPatch, `[{"action":"allow","target":"api.example.org"},{"action":"deny","target":"api.example.org"}]`, `{"action":"allow","target":"a.example.com"},{"action":"allow","target":"api.example.org"}`},
		{http.MethodPatch, `[{"action":"deny","target":"a.example.com"},{"action":"deny","target":"other.example"}]`, `{"action":"allow","target":"api.example.org"}`},
		{http.MethodDelete, `["nothing.example","API.example.org"]`, ``},
		{http.MethodPatch, `[{"action":"allow","target":"*.example.com"}]`, `{"action":"allow","target":"*.example.com"}`},
	} {
		got := f.do(step.method, path, step.body, apiKey).wants(http.StatusOK)
		assert.Equal(t, got.text, policy("deny", step.policy), "%s %s", step.method, step.body)
	}
	assert.DeepEqual(t, hosts(f.reaches(narrow)), []string{"*.example.com"})
	f.do(http.MethodPatch, path, `[{"action":"allow","target":"evil.example"}]`, apiKey).refuses(http.StatusForbidden, "SB012")
	f.do(http.MethodPatch, path, `[{"action":"deny","target":"b.example.com"}]`, apiKey).refuses(http.StatusBadRequest, "SB010")
	f.do(http.MethodPatch, path, `[{"action":"allow","target":"a.example.com","port":1}]`, apiKey).refuses(http.StatusBadRequest, "SB010")
	f.do(http.MethodPatch, path, `[{"action":"allow","target":"a.example.com"}]`, stranger).refuses(http.StatusNotFound, "SB013")
	f.do(http.MethodDelete, path, `["*.example.com"]`, stranger).refuses(http.StatusNotFound, "SB013")
	assert.DeepEqual(t, hosts(f.reaches(narrow)), []string{"*.example.com"})
	// One that reaches all of its tenant's has no rules.
	path = "/v1/sandboxes/" + f.sandbox + "/proxy/18080/policy"
	f.do(http.MethodPatch, path, `[{"action":"allow","target":"a.example.com"}]`, apiKey).refuses(http.StatusNotImplemented, "SB015")
	f.do(http.MethodDelete, path, `["a.example.com"]`, apiKey).wants(http.StatusOK)
	assert.DeepEqual(t, hosts(f.reaches(f.sandbox)), hosts(reach()))
}

func TestAPolicyThatTheOperatorPromisesIsNotChanged(t *testing.T) {
	f := start(t)
	f.server.SetFrontDoors(map[string]frontdoor.Settings{"opensandbox": {Path: "/opensandbox", Network: "deny", Images: map[string]string{"python:3.12": ""}}})
	path := "/v1/sandboxes/" + f.sandbox + "/proxy/18080/policy"
	f.do(http.MethodPatch, path, `[{"action":"allow","target":"a.example.com"}]`, apiKey).refuses(http.StatusBadRequest, "SB010")
	f.do(http.MethodPatch, path, `[{"action":"deny","target":"a.example.com"}]`, apiKey).wants(http.StatusOK)
}
