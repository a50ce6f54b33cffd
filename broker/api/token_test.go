package api_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// countedTenants counts how often a token is looked at.
type countedTenants struct {
	frontdoor.Tenants
	looks atomic.Int64
}

func (c *countedTenants) Authenticate(token string) (tenant.Tenant, bool) {
	c.looks.Add(1)
	return c.Tenants.Authenticate(token)
}

func TestATokenIsLookedAtOnceARequest(t *testing.T) {
	counted := &countedTenants{}
	f := start(t, withAdmin, func(o *api.Options, _ *fixture) { counted.Tenants, o.Tenants = o.Tenants, counted })
	for name, test := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
	}{
		"without a body":        {http.MethodGet, "/api/v1/providers", "", nil, http.StatusOK},
		"with a body":           {http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, nil, http.StatusOK},
		"with events":           {http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, []string{"Accept: text/event-stream"}, http.StatusOK},
		"whose body streams":    {http.MethodPut, "/api/v1/instances/acme:s:aaaaaaaaaaaaaaaaaaaa/files/content?path=x", "content", nil, http.StatusNotFound},
		"of an administrator":   {http.MethodGet, adminProviders, "", []string{adminToken}, http.StatusOK},
		"of a stranger":         {http.MethodGet, "/api/v1/providers", "", []string{"Authorization: Bearer wrong"}, http.StatusUnauthorized},
		"that is too large":     {http.MethodPost, "/api/v1/execute", strings.Repeat(" ", maxBody+1), nil, http.StatusRequestEntityTooLarge},
		"that leads nowhere":    {http.MethodGet, "/nowhere", "", nil, http.StatusNotFound},
		"that needs no token":   {http.MethodGet, "/healthz", "", nil, http.StatusOK},
		"that cannot be read":   {http.MethodPost, "/api/v1/execute", `{"code":`, nil, http.StatusBadRequest},
		"for what is not his":   {http.MethodGet, adminProviders, "", nil, http.StatusForbidden},
		"with an administrator": {http.MethodGet, "/api/v1/providers", "", []string{adminToken}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			before := counted.looks.Load()
			f.do(test.method, test.path, test.body, test.headers...).wants(test.status)
			assert.Equal(t, counted.looks.Load()-before, int64(1))
		})
	}
}
