package api_test

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	adminProviders = "/api/admin/sandbox/providers"
	adminToken     = "Authorization: Bearer admin-token"
)

// administered are the providers of a broker whose administrator has a token.
type administered []admin.Provider

func (administered) AdminTokens() [][32]byte {
	return [][32]byte{sha256.Sum256([]byte("admin-token"))}
}

func newService(a administered) *admin.Service { return admin.NewService(a, nil) }

func (a administered) AdminProviders() []admin.Provider { return a }

// withAdmin gives the server an administrator and providers to look at.
func withAdmin(o *api.Options, _ *fixture) {
	then := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	o.Admin = newService(administered{
		{
			Label: "e2b_eu", Active: true,
			Executable: pluginhost.Executable{Name: "e2b", Path: "/opt/plugins/e2b", SHA256: strings.Repeat("ab", 32), Pinned: true},
			Description: sdk.Description{
				Name: "e2b", Version: "1.2.3", Summary: "Sandboxes of E2B.", Icon: "cloud", Tags: []string{"cloud"},
				Languages:    []sdk.Language{sdk.Python, sdk.Bash},
				Templates:    []sdk.Template{{Name: "python", Languages: []sdk.Language{sdk.Python}}},
				Capabilities: []sdk.Capability{sdk.CapabilityFiles},
				Schema: sdk.Schema{
					{Name: "region", Type: sdk.TypeString, Default: "us", Options: []string{"us", "eu"}, Label: "Region"},
					{Name: "api_key", Type: sdk.TypeString, Secret: true, Default: "s3cret-default", Placeholder: "e2b_..."},
					{Name: "timeout", Type: sdk.TypeDuration, Default: 90.0, Min: sdk.Bound(1)},
					{Name: "retry", Type: sdk.TypeDuration, Default: 2 * time.Second},
					{Name: "pool_size", Type: sdk.TypeInteger, Required: true, Max: sdk.Bound(100), Description: "How many."},
				},
			},
			State: pluginhost.State{
				Label: "e2b_eu", Phase: pluginhost.PhaseReady, Healthy: true, Since: then, Restarts: 2, PID: 4711,
				Details:   map[string]string{"region": "eu"},
				LastError: &pluginhost.ExitError{Label: "e2b_eu", Status: "exited with status 2", Stderr: "panic: out of luck\ngoroutine 1"},
				FailedAt:  then.Add(-time.Minute),
			},
			Draining: 1,
		},
		{
			Label:      "broken",
			Executable: pluginhost.Executable{Name: "broken", Path: "/opt/plugins/broken"},
			State: pluginhost.State{
				Label: "broken", Phase: pluginhost.PhaseUnavailable, Reason: "there is no plugin", Since: then,
				LastError: errors.New("there is no plugin"), FailedAt: then, NextTry: then.Add(30 * time.Second),
			},
		},
	})
}

func TestAnAdministratorSeesTheProviders(t *testing.T) {
	f := start(t, withAdmin)
	list := f.do(http.MethodGet, adminProviders, "", adminToken).wants(http.StatusOK)
	golden.Assert(t, list.indented(), "admin_providers.golden")
	one := f.do(http.MethodGet, adminProviders+"/e2b_eu", "", adminToken).wants(http.StatusOK)
	assert.Assert(t, strings.Contains(list.text, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(one.text), `{"data":`), "}")))
	f.do(http.MethodGet, adminProviders, "", "Authorization: ", "X-API-Key: admin-token").wants(http.StatusOK)
	f.do(http.MethodGet, adminProviders+"/none", "", adminToken).problem(http.StatusNotFound, "SB013")
	for _, answer := range []answer{list, one} {
		assert.Assert(t, !strings.Contains(answer.text, "s3cret"))
	}
	assert.Assert(t, !strings.Contains(f.log.String(), "admin-token"))
}

func TestWhoIsNoAdministratorSeesNothing(t *testing.T) {
	f := start(t, withAdmin)
	without := start(t)
	for _, path := range []string{adminProviders, adminProviders + "/e2b_eu", adminProviders + "/none"} {
		f.do(http.MethodGet, path, "", "Authorization: ").problem(http.StatusUnauthorized, "SB011")
		f.do(http.MethodGet, path, "", "Authorization: Bearer wrong").problem(http.StatusUnauthorized, "SB011")
		f.do(http.MethodGet, path, "").problem(http.StatusForbidden, "SB012")
		// Two tokens that differ are none.
		f.do(http.MethodGet, path, "", adminToken, "X-API-Key: acme-token").problem(http.StatusUnauthorized, "SB011")
		for _, token := range []string{"Authorization: ", "Authorization: Bearer acme-token", adminToken} {
			p := without.do(http.MethodGet, path, "", token).problem(http.StatusForbidden, "SB012")
			assert.Assert(t, strings.Contains(p.Detail, "admin { token_sha256"), p.Detail)
		}
	}
	// An administrator is no tenant.
	f.do(http.MethodGet, "/api/v1/providers", "", adminToken).problem(http.StatusUnauthorized, "SB011")
	f.do(http.MethodPost, adminProviders, "{}", adminToken).problem(http.StatusMethodNotAllowed, "SB010")
}

func TestTheLastWordsOfAPluginAreCut(t *testing.T) {
	f := start(t, func(o *api.Options, f *fixture) {
		o.Admin = newService(administered{
			{Label: "a", State: pluginhost.State{LastError: &pluginhost.ExitError{Stderr: strings.Repeat("a line of words\n", 4000) + "the end"}}},
		})
	})
	answer := f.do(http.MethodGet, adminProviders+"/a", "", adminToken).wants(http.StatusOK)
	assert.Assert(t, len(answer.text) < 10<<10)
	assert.Assert(t, strings.Contains(answer.text, `"stderr":"a line of words\n`) && strings.Contains(answer.text, `the end"`))
}
