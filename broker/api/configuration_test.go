package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/v1"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const adminPath = "/api/admin/sandbox"

// then is a time in another zone than UTC.
var then = time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("CET", 3600))

// configurator answers what it is told to, and remembers what it was asked.
type configurator struct {
	asked      any // of a dry run
	restored   int
	generation admin.Generation
	saved      admin.ProviderSettings
	activated  admin.Activation
	tested     map[string]any
	dry        bool
	err        error
}

var _ v1.Configurator = (*configurator)(nil)

var mistakes = config.Diagnostics{
	{Severity: config.SeverityWarning, Summary: "Old setting", Detail: "It goes.", File: "sandbox.hcl"},
	{
		Severity: config.SeverityError, Summary: "Invalid value", Detail: "size must be at least 1.", File: "sandbox.hcl", Within: `provider "e2b"`,
		Start: config.Position{Line: 3, Column: 5}, End: config.Position{Line: 3, Column: 9}, Excerpt: config.Excerpt{Text: "s3cret = 1"},
	},
	{Severity: config.SeverityError, Summary: "Unknown setting", Detail: "There is no such.", File: "sandbox.hcl"},
}

func applied(revision string) admin.Reload {
	return admin.Reload{
		At: then, Took: 12345 * time.Microsecond, Trigger: admin.TriggerAPI, Operation: `provider "e2b"`, Generation: 3, Applied: true, Revision: revision,
		Change: admin.Change{
			Providers:    []admin.ProviderChange{{Provider: "e2b", Action: admin.ProviderRestarts, Draining: 2}},
			TenantsAdded: []string{"late"}, Settings: []string{"limits"},
		},
	}
}

func refusedReload() admin.Reload {
	return admin.Reload{At: then, Took: time.Millisecond, Trigger: admin.TriggerFile, Generation: 3, Revision: "cd", Diagnostics: mistakes}
}

func (c *configurator) Configuration() admin.Configuration {
	return admin.Configuration{
		Generation: c.generation,
		Settings: map[string][]admin.Setting{
			"e2b": {
				{Name: "api_key", Value: "****1234", Origin: config.Origin{Kind: config.OriginSealed, Sensitive: true}, Masked: true},
				{Name: "region", Value: "****-eu", Origin: config.Origin{Kind: config.OriginEnv, Name: "REGION", Sensitive: true}, Masked: true},
				{Name: "timeout", Value: "30s", Origin: config.Origin{Kind: config.OriginDefault}},
				{Name: "template", Origin: config.Origin{Kind: config.OriginDefault}},
			},
			"active": {{Name: "x", Value: 1, Origin: config.Origin{Kind: config.OriginLiteral}}},
		},
		Files: []string{"sandbox.hcl", "conf.d/a.hcl"}, ReadOnly: "sandbox.hcl: the file cannot be changed here", Differs: true, Seals: true,
		LastRefused: new(refusedReload()),
	}
}

func (c *configurator) InForce() admin.Generation { return c.generation }

func (c *configurator) SaveProvider(_ context.Context, req admin.ProviderSettings) (admin.Outcome, error) {
	c.saved = req
	return admin.Outcome{Reload: applied("ef"), Trial: &admin.Trial{Success: true, Message: "It is well.", Latency: 1500 * time.Microsecond}}, c.err
}

func (c *configurator) Activate(_ context.Context, req admin.Activation) (admin.Outcome, error) {
	c.activated = req
	return admin.Outcome{Reload: applied("ef")}, c.err
}

// previewed is a dry run of anything.
func (c *configurator) previewed(asked any) (admin.Preview, error) {
	c.asked = asked
	reload := applied("ef")
	reload.DryRun = true
	return admin.Preview{Reload: reload, Difference: "--- a\n+++ a\n", Revision: "ab"}, c.err
}

func (c *configurator) PreviewProvider(_ context.Context, req admin.ProviderSettings) (admin.Preview, error) {
	return c.previewed(req)
}

func (c *configurator) PreviewActivation(_ context.Context, req admin.Activation) (admin.Preview, error) {
	return c.previewed(req)
}

func (c *configurator) PreviewRestore(_ context.Context, generation int, ifMatch []string) (admin.Preview, error) {
	return c.previewed([]any{generation, ifMatch})
}

func (c *configurator) Restore(_ context.Context, generation int, ifMatch []string) (admin.Outcome, error) {
	c.restored, c.asked = generation, ifMatch
	return admin.Outcome{Reload: applied("ef")}, c.err
}

func (c *configurator) Test(_ context.Context, req admin.ProviderSettings) (admin.Trial, error) {
	c.tested = req.Settings
	return admin.Trial{
		Message: "is a bad key", Code: sdk.CodeInvalidConfig, Field: "api_key", Latency: 250 * time.Millisecond, Details: map[string]string{"region": "eu"},
	}, c.err
}

func (c *configurator) Reload(_ context.Context, dry bool) (admin.Reload, error) {
	c.dry = dry
	return applied("ef"), c.err
}

func (c *configurator) Generations() []admin.Reload {
	return []admin.Reload{refusedReload(), applied("ab")}
}

func (c *configurator) Status() admin.Status {
	return admin.Status{Version: "v1.2.3", Started: then, Instances: map[string]int{"live": 2, "paused": 0, "creating": 1, "unclear": 0, "ending": 0}}
}

// startConfigurable is an API with an administrator.
func startConfigurable(t *testing.T) (*fixture, *configurator) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sandbox.hcl")
	assert.NilError(t, os.WriteFile(path, []byte("provider \"e2b\" {}\nprovider \"spare\" {}\nproviders {\n active = \"e2b\"\n fallback = [\"spare\"]\n}\ntenant \"t\" { token_sha256 = [\""+strings.Repeat("a", 64)+"\"] }\n"), 0o600))
	cfg, diags := config.Load(path)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	cfg.Revision = "ab"
	c := &configurator{generation: admin.Generation{Number: 3, Accepted: then, Config: cfg}}
	return start(t, withAdmin, func(o *api.Options, _ *fixture) { o.Configurator = c }), c
}

func (f *fixture) asAdmin(method, path, body string, headers ...string) answer {
	f.t.Helper()
	return f.do(method, adminPath+path, body, append(headers, adminToken)...)
}

func TestAnAdministratorSeesTheConfiguration(t *testing.T) {
	f, _ := startConfigurable(t)
	for name, path := range map[string]string{"config": "/config", "generations": "/generations"} {
		answer := f.asAdmin(http.MethodGet, path, "").wants(http.StatusOK)
		golden.Assert(t, answer.indented(), "admin_"+name+".golden")
		assert.Check(t, !strings.Contains(answer.text, "s3cret"), "excerpts are not for the API")
	}
	assert.Equal(t, f.asAdmin(http.MethodGet, "/config", "").Header.Get("ETag"), `"ab"`)
	var list client.AdminGenerations
	f.asAdmin(http.MethodGet, "/generations?limit=1", "").wants(http.StatusOK).decode(&list)
	assert.Assert(t, is.Len(list.Data, 1))
	f.asAdmin(http.MethodGet, "/generations?limit=0", "").problem(http.StatusUnprocessableEntity, "SB010")

	var status client.AdminStatusAnswer
	f.asAdmin(http.MethodGet, "/status", "").wants(http.StatusOK).decode(&status)
	assert.Equal(t, status.Data.Version, "v1.2.3")
	assert.Equal(t, status.Data.Generation, 3)
	assert.Equal(t, status.Data.Active, "e2b")
	assert.DeepEqual(t, status.Data.Fallback, []string{"spare"})
	assert.Equal(t, status.Data.Instances["live"], 2)
	assert.Assert(t, is.Len(status.Data.Providers, 2))
	assert.Equal(t, status.Data.LastReload.Result, "refused")
	assert.Equal(t, status.Data.AcceptedAt, then.UTC())
}

func TestAnAdministratorChangesTheConfiguration(t *testing.T) {
	f, c := startConfigurable(t)
	answer := f.asAdmin(http.MethodPost, "/config", `{"provider_type":"e2b","config":{"size":8,"share":0.50,"api_key":"****1234","gone":null},"test_connection":true}`,
		`If-Match: W/"x", "ab"`).wants(http.StatusOK)
	golden.Assert(t, answer.indented(), "admin_changed.golden")
	assert.Equal(t, answer.Header.Get("ETag"), `"ef"`)
	assert.DeepEqual(t, c.saved, admin.ProviderSettings{
		Provider: "e2b", Test: true, Activate: true, IfMatch: []string{"-", "ab"},
		Settings: map[string]any{"size": json.Number("8"), "share": json.Number("0.50"), "api_key": "****1234", "gone": nil},
	})
	f.asAdmin(http.MethodPost, "/config", `{"provider":"e2b","config":{},"set_active":false}`, "If-Match: *").wants(http.StatusOK)
	assert.DeepEqual(t, c.saved, admin.ProviderSettings{Provider: "e2b", Settings: map[string]any{}})

	answer = f.asAdmin(http.MethodPut, "/active", `{"provider":"spare"}`, `If-Match: "ab"`).wants(http.StatusOK)
	assert.Equal(t, answer.Header.Get("ETag"), `"ef"`)
	assert.DeepEqual(t, c.activated, admin.Activation{Provider: "spare", IfMatch: []string{"ab"}})
	f.asAdmin(http.MethodPut, "/active", `{"provider":"spare","fallback":[]}`).wants(http.StatusOK)
	assert.DeepEqual(t, c.activated, admin.Activation{Provider: "spare", Fallback: []string{}})

	f.asAdmin(http.MethodPost, "/reload", "").wants(http.StatusOK)
	assert.Assert(t, !c.dry)
	f.asAdmin(http.MethodPost, "/reload", `{"dry_run":true}`).wants(http.StatusOK)
	assert.Assert(t, c.dry)
}

func TestADryRunChangesNothing(t *testing.T) {
	f, c := startConfigurable(t)
	for _, test := range []struct {
		method, path, body string
		asked              any
	}{
		{http.MethodPost, "/config", `{"provider":"e2b","config":{"size":8},"dry_run":true}`, admin.ProviderSettings{
			Provider: "e2b", Activate: true, IfMatch: []string{"ab"}, Settings: map[string]any{"size": json.Number("8")},
		}},
		{http.MethodPut, "/active", `{"provider":"spare","dry_run":true}`, admin.Activation{Provider: "spare", IfMatch: []string{"ab"}}},
		{http.MethodPost, "/generations/3/restore", `{"dry_run":true}`, []any{3, []string{"ab"}}},
	} {
		answer := f.asAdmin(test.method, test.path, test.body, `If-Match: "ab"`).wants(http.StatusOK)
		assert.DeepEqual(t, c.asked, test.asked)
		assert.Equal(t, answer.Header.Get("ETag"), `"ab"`, "of the files as they are")
		var changed struct {
			Reload     struct{ Result string }
			Difference string
		}
		answer.decode(&changed)
		assert.Equal(t, changed.Reload.Result, "would_apply")
		assert.Equal(t, changed.Difference, "--- a\n+++ a\n")
	}
	assert.Equal(t, c.saved.Provider+c.activated.Provider, "")
	assert.Equal(t, c.restored, 0)
	f.asAdmin(http.MethodPost, "/config", `{"provider":"e2b","config":{},"dry_run":true,"test_connection":true}`).problem(http.StatusUnprocessableEntity, "SB010")
}

func TestAnAdministratorRestoresAGeneration(t *testing.T) {
	f, c := startConfigurable(t)
	answer := f.asAdmin(http.MethodPost, "/generations/2/restore", "", `If-Match: "ab"`).wants(http.StatusOK)
	assert.Equal(t, answer.Header.Get("ETag"), `"ef"`)
	assert.Equal(t, c.restored, 2)
	assert.DeepEqual(t, c.asked, []string{"ab"})
	f.asAdmin(http.MethodPost, "/generations/2/restore", `{"dry_run":false}`).wants(http.StatusOK)
	f.asAdmin(http.MethodPost, "/generations/x/restore", "").problem(http.StatusNotFound, "SB013")
	c.err = sdk.Errorf(sdk.CodeNotFound, "there is no such generation")
	f.asAdmin(http.MethodPost, "/generations/99/restore", "").problem(http.StatusNotFound, "SB013")
}

func TestRequestsToChangeThatMakeNoSense(t *testing.T) {
	f, _ := startConfigurable(t)
	for name, test := range map[string]struct{ method, path, body, header, field string }{
		"no provider":           {http.MethodPost, "/config", `{"config":{}}`, "", "provider_type"},
		"two providers":         {http.MethodPost, "/test", `{"provider":"a","provider_type":"b"}`, "", "provider"},
		"no settings":           {http.MethodPost, "/config", `{"provider":"a"}`, "", "config"},
		"settings that are one": {http.MethodPost, "/config", `{"provider":"a","config":1}`, "", "config"},
		"an ETag without marks": {http.MethodPost, "/config", `{"provider":"a","config":{}}`, "If-Match: ab", "If-Match"},
		"nobody to be active":   {http.MethodPut, "/active", `{"fallback":[]}`, "", "provider"},
		"a word for dry_run":    {http.MethodPost, "/reload", `{"dry_run":"yes"}`, "", "dry_run"},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			p := f.asAdmin(test.method, test.path, test.body, test.header).problem(http.StatusUnprocessableEntity, "SB010")
			assert.Equal(t, p.Field, test.field)
		})
	}
}

func TestChangesThatAreRefused(t *testing.T) {
	f, c := startConfigurable(t)
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
		field  string
	}{
		"mistakes":               {mistakes, http.StatusBadRequest, "SB002", ""},
		"fields":                 {admin.FieldErrors{{Field: "size", Message: "must be at least 1"}, {Field: "on", Message: "must be true or false"}}, http.StatusBadRequest, "SB002", "config.size"},
		"a conflict":             {sdk.Errorf(sdk.CodeConflict, "the configuration is another one by now"), http.StatusConflict, "SB014", ""},
		"what env gives":         {sdk.FieldErrorf(sdk.CodeConflict, "region", "the file computes this value"), http.StatusConflict, "SB014", "config.region"},
		"a file that is fixed":   {sdk.Errorf(sdk.CodeNotAllowed, "sandbox.hcl: the file cannot be changed here"), http.StatusForbidden, "SB012", ""},
		"a service that is away": {sdk.Errorf(sdk.CodeConnectionFailed, "no route to the service"), http.StatusBadGateway, "SB003", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f.t, c.err = t, test.err
			answer := f.asAdmin(http.MethodPost, "/config", `{"provider":"e2b","config":{"size":0}}`)
			p := answer.problem(test.status, test.code)
			assert.Equal(t, p.Field, test.field)
			assert.Equal(t, answer.Header.Get("ETag"), "")
			if name == "mistakes" || name == "fields" {
				golden.Assert(t, answer.indented(), "admin_refused_"+name+".golden")
			}
		})
	}
}

func TestWhatATrialSays(t *testing.T) {
	f, c := startConfigurable(t)
	for name, err := range map[string]error{
		"of_the_provider": nil,
		"of_mistakes":     mistakes,
		"of_fields":       admin.FieldErrors{{Field: "size", Message: "must be at least 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f.t, c.err = t, err
			answer := f.asAdmin(http.MethodPost, "/test", `{"provider_type":"e2b","config":{"size":0}}`).wants(http.StatusOK)
			golden.Assert(t, answer.indented(), "admin_test_"+name+".golden")
			assert.DeepEqual(t, c.tested, map[string]any{"size": json.Number("0")})
		})
	}
	busy := sdk.Errorf(sdk.CodeQuotaExceeded, "2 providers are being tried already")
	busy.RetryAfter = 5 * time.Second
	f.t, c.err = t, busy
	answer := f.asAdmin(http.MethodPost, "/test", `{"provider":"e2b"}`)
	answer.problem(http.StatusTooManyRequests, "SB008")
	assert.Equal(t, answer.Header.Get("Retry-After"), "5")
}

func TestOnlyAdministratorsChangeTheConfiguration(t *testing.T) {
	f, c := startConfigurable(t)
	for _, route := range []struct{ method, path string }{
		{http.MethodGet, "/config"},
		{http.MethodPost, "/config"},
		{http.MethodPost, "/test"},
		{http.MethodPut, "/active"},
		{http.MethodGet, "/generations"},
		{http.MethodPost, "/reload"},
		{http.MethodPost, "/generations/1/restore"},
		{http.MethodGet, "/status"},
	} {
		body := ""
		if route.method != http.MethodGet {
			body = `{"provider":"e2b","config":{}}`
		}
		f.do(route.method, adminPath+route.path, body).problem(http.StatusForbidden, "SB012")
		f.do(route.method, adminPath+route.path, body, "Authorization: Bearer wrong").problem(http.StatusUnauthorized, "SB011")
	}
	assert.Equal(t, c.saved.Provider, "")
	assert.Assert(t, c.tested == nil && c.activated.Provider == "")
}
