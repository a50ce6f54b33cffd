package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const adminTenants = "/api/admin/sandbox/tenants"

// tenants answers what it is told to, and remembers what it was asked.
type tenants struct {
	list  []admin.Tenant
	asked []any
	err   error
}

func (f *tenants) Tenants() ([]admin.Tenant, string) { return f.list, "ab" }

func (f *tenants) Tenant(name string) (admin.Tenant, string, error) {
	for _, t := range f.list {
		if t.Name == name {
			return t, "ab", nil
		}
	}
	return admin.Tenant{}, "", sdk.Errorf(sdk.CodeNotFound, "there is no such tenant")
}

func (f *tenants) changed(asked ...any) (admin.Outcome, error) {
	f.asked = asked
	return admin.Outcome{Reload: admin.Reload{Revision: "cd", Applied: true}}, f.err
}

func (f *tenants) made(asked ...any) (admin.NewToken, error) {
	outcome, err := f.changed(asked...)
	return admin.NewToken{Outcome: outcome, Token: "sbk_s3cret", ID: "0123456789abcdef"}, err
}

func (f *tenants) previewed(asked ...any) (admin.Preview, error) {
	f.asked = asked
	return admin.Preview{Reload: admin.Reload{DryRun: true, Applied: true}, Difference: "-a\n", Revision: "ab"}, f.err
}

func (f *tenants) PreviewNewTenant(_ context.Context, req admin.TenantSettings) (admin.Preview, error) {
	return f.previewed("would add", req)
}

func (f *tenants) PreviewTenant(_ context.Context, req admin.TenantSettings) (admin.Preview, error) {
	return f.previewed("would change", req)
}

func (f *tenants) PreviewRemoval(_ context.Context, name string, ifMatch []string) (admin.Preview, error) {
	return f.previewed("would remove", name, ifMatch)
}

func (f *tenants) AddTenant(_ context.Context, req admin.TenantSettings) (admin.NewToken, error) {
	return f.made("add", req)
}

func (f *tenants) ChangeTenant(_ context.Context, req admin.TenantSettings) (admin.Outcome, error) {
	return f.changed("change", req)
}

func (f *tenants) RemoveTenant(_ context.Context, name string, ifMatch []string) (admin.Outcome, error) {
	return f.changed("remove", name, ifMatch)
}

func (f *tenants) AddToken(_ context.Context, name string, ifMatch []string) (admin.NewToken, error) {
	return f.made("add token", name, ifMatch)
}

func (f *tenants) RotateToken(_ context.Context, name, id string, ifMatch []string) (admin.NewToken, error) {
	return f.made("rotate token", name, id, ifMatch)
}

func (f *tenants) RevokeToken(_ context.Context, name, id string, ifMatch []string) (admin.Outcome, error) {
	return f.changed("revoke token", name, id, ifMatch)
}

func startTenants(t *testing.T) (*fixture, *tenants) {
	t.Helper()
	all := &tenants{list: []admin.Tenant{
		{Name: "acme", Providers: []string{"e2b"}, Tokens: []string{"1111111111111111"}, Quota: map[string]any{"max_cpus": 0.5}},
		{Name: "umbrella", Tokens: []string{"2222222222222222", "3333333333333333"}, Quota: map[string]any{}},
	}}
	return start(t, withAdmin, func(o *api.Options, _ *fixture) { o.TenantConfigurator = all }), all
}

func TestAnAdministratorSeesTheTenants(t *testing.T) {
	f, _ := startTenants(t)
	list := f.do(http.MethodGet, adminTenants, "", adminToken).wants(http.StatusOK)
	assert.Equal(t, list.Header.Get("ETag"), `"ab"`)
	const acme = `{"name":"acme","providers":["e2b"],"tokens":[{"id":"1111111111111111"}],"quota":{"max_cpus":0.5}}`
	const umbrella = `{"name":"umbrella","providers":[],"tokens":[{"id":"2222222222222222"},{"id":"3333333333333333"}],"quota":{}}`
	assert.Equal(t, list.text, `{"data":[`+acme+`,`+umbrella+`]}`)
	one := f.do(http.MethodGet, adminTenants+"/umbrella", "", adminToken).wants(http.StatusOK)
	assert.Equal(t, one.Header.Get("ETag"), `"ab"`)
	assert.Equal(t, one.text, `{"data":`+umbrella+`}`)
	f.do(http.MethodGet, adminTenants+"/nobody", "", adminToken).problem(http.StatusNotFound, "SB013")
}

func TestWhatIsAskedOfTenants(t *testing.T) {
	f, all := startTenants(t)
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		asked              []any
	}{
		"a tenant is added": {
			http.MethodPost, "", `{"name": "late", "providers": ["e2b"], "quota": {"max_cpus": 1e2, "executions_per_day": 12345678901234567890}}`, http.StatusCreated,
			[]any{"add", admin.TenantSettings{
				Name: "late", Providers: []string{"e2b"}, IfMatch: []string{"x"},
				Quota: map[string]any{"max_cpus": json.Number("1e2"), "executions_per_day": json.Number("12345678901234567890")},
			}},
		},
		"a tenant is added with its name only": {
			http.MethodPost, "", `{"name": "late"}`, http.StatusCreated,
			[]any{"add", admin.TenantSettings{Name: "late", Quota: map[string]any{}, IfMatch: []string{"x"}}},
		},
		"providers change": {
			http.MethodPatch, "/acme", `{"providers": ["a", "b"]}`, http.StatusOK,
			[]any{"change", admin.TenantSettings{Name: "acme", Providers: []string{"a", "b"}, Quota: map[string]any{}, IfMatch: []string{"x"}}},
		},
		"all providers are allowed": {
			http.MethodPatch, "/acme", `{"providers": []}`, http.StatusOK,
			[]any{"change", admin.TenantSettings{Name: "acme", Providers: []string{}, Quota: map[string]any{}, IfMatch: []string{"x"}}},
		},
		"a quota is removed": {
			http.MethodPatch, "/acme", `{"quota": {"max_cpus": null}}`, http.StatusOK,
			[]any{"change", admin.TenantSettings{Name: "acme", Quota: map[string]any{"max_cpus": nil}, IfMatch: []string{"x"}}},
		},
		"a tenant is removed": {http.MethodDelete, "/acme", "", http.StatusOK, []any{"remove", "acme", []string{"x"}}},
		"a token is added":    {http.MethodPost, "/acme/tokens", "", http.StatusCreated, []any{"add token", "acme", []string{"x"}}},
		"a token is rotated":  {http.MethodPost, "/acme/tokens/1111111111111111/rotate", "", http.StatusOK, []any{"rotate token", "acme", "1111111111111111", []string{"x"}}},
		"a token is revoked":  {http.MethodDelete, "/acme/tokens/1111111111111111", "", http.StatusOK, []any{"revoke token", "acme", "1111111111111111", []string{"x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			all.err = nil
			answer := f.do(test.method, adminTenants+test.path, test.body, adminToken, `If-Match: "x"`).wants(test.status)
			assert.Check(t, is.DeepEqual(all.asked, test.asked))
			assert.Check(t, is.Equal(answer.Header.Get("ETag"), `"cd"`))
			assert.Check(t, is.Contains(answer.text, `"result":"applied"`))
			made := strings.Contains(test.asked[0].(string), "add") || strings.Contains(test.asked[0].(string), "rotate")
			assert.Check(t, is.Equal(strings.Contains(answer.text, `"token":"sbk_s3cret","token_id":"0123456789abcdef"`), made))

			all.err = sdk.Errorf(sdk.CodeConflict, "the configuration is another one by now")
			refused := f.do(test.method, adminTenants+test.path, test.body, adminToken)
			refused.problem(http.StatusConflict, "SB014")
			assert.Check(t, !strings.Contains(refused.text, "s3cret"))
			f.do(test.method, adminTenants+test.path, test.body, adminToken, "If-Match: x").problem(http.StatusUnprocessableEntity, "SB010")
			f.do(test.method, adminTenants+test.path, test.body).problem(http.StatusForbidden, "SB012")
			f.do(test.method, adminTenants+test.path, test.body, "Authorization: ").problem(http.StatusUnauthorized, "SB011")
		})
	}
	assert.Check(t, !strings.Contains(f.log.String(), "s3cret"))
}

func TestBodiesAboutTenantsThatAreWrong(t *testing.T) {
	f, all := startTenants(t)
	for name, test := range map[string]struct{ method, path, body, field string }{
		"no name":                          {http.MethodPost, "", `{}`, "name"},
		"a name that is none":              {http.MethodPost, "", `{"name": "Acme Corp"}`, "name"},
		"a name that is too long":          {http.MethodPost, "", `{"name": "` + strings.Repeat("a", 33) + `"}`, "name"},
		"providers that are no list":       {http.MethodPatch, "/acme", `{"providers": "e2b"}`, "providers"},
		"a quota that is no object":        {http.MethodPatch, "/acme", `{"quota": 5}`, "quota"},
		"a setting that there is not":      {http.MethodPatch, "/acme", `{"token_sha256": []}`, "token_sha256"},
		"another name than that in a path": {http.MethodPatch, "/acme", `{"name": "late"}`, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			p := f.do(test.method, adminTenants+test.path, test.body, adminToken).problem(http.StatusUnprocessableEntity, "SB010")
			assert.Equal(t, p.Field, test.field)
			assert.Check(t, is.Len(all.asked, 0))
		})
	}
}

func TestADryRunChangesNoTenant(t *testing.T) {
	f, all := startTenants(t)
	for _, test := range []struct {
		method, path, body string
		asked              []any
	}{
		{http.MethodPost, adminTenants, `{"name":"new","dry_run":true}`, []any{"would add", admin.TenantSettings{Name: "new", Quota: map[string]any{}, IfMatch: []string{"ab"}}}},
		{http.MethodPatch, adminTenants + "/acme", `{"quota":{},"dry_run":true}`, []any{"would change", admin.TenantSettings{Name: "acme", Quota: map[string]any{}, IfMatch: []string{"ab"}}}},
		{http.MethodDelete, adminTenants + "/acme?dry_run=true", "", []any{"would remove", "acme", []string{"ab"}}},
	} {
		answer := f.do(test.method, test.path, test.body, adminToken, `If-Match: "ab"`).wants(http.StatusOK)
		assert.DeepEqual(t, all.asked, test.asked)
		assert.Check(t, is.Contains(answer.text, `"result":"would_apply"`))
		assert.Check(t, is.Contains(answer.text, `"difference":"-a\n"`))
		assert.Check(t, !strings.Contains(answer.text, "s3cret"))
	}
	f.do(http.MethodDelete, adminTenants+"/acme?dry_run=perhaps", "", adminToken).problem(http.StatusUnprocessableEntity, "SB010")
}
