package admin_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const withTenants = `provider "local" {}
provider "cloud" {}
providers { active = "local" }

quota {
  max_concurrent = 4
}

# Ask Ada.
tenant "acme" {
  token_sha256 = [
    "1111111111111111111111111111111111111111111111111111111111111111", # in use
    "2222222222222222222222222222222222222222222222222222222222222222",
  ]
  providers = ["local"]
  quota { executions_per_day = 100 }
}

tenant "umbrella" {
  token_sha256 = ["3333333333333333333333333333333333333333333333333333333333333333"]
}
`

// tenantsDaemon is a broker of which there is nothing but its configuration.
type tenantsDaemon struct {
	admin.Daemon
	path    string
	inForce *config.Config
	last    admin.Reload
	refuse  error // what Apply says before it saves
}

func (d *tenantsDaemon) File() string { return d.path }

func (d *tenantsDaemon) InForce() admin.Generation {
	return admin.Generation{Number: 1, Config: d.inForce}
}

func (d *tenantsDaemon) Apply(_ context.Context, begun admin.Reload, draft admin.Draft) (admin.Reload, error) {
	if d.refuse != nil {
		return begun, d.refuse
	}
	if err := draft.Save(); err != nil {
		return begun, err
	}
	cfg := draft.Config()
	d.inForce, d.last = cfg, begun
	begun.Applied, begun.Revision = true, cfg.Revision
	return begun, nil
}

func startTenants(t *testing.T) (*admin.Configurator, *tenantsDaemon) {
	t.Helper()
	d := &tenantsDaemon{path: filepath.Join(t.TempDir(), "sandbox.hcl")}
	assert.NilError(t, os.WriteFile(d.path, []byte(withTenants), 0o600))
	cfg, diags := config.Load(d.path)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	d.inForce = cfg
	return admin.NewConfigurator(d), d
}

func (d *tenantsDaemon) text(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(d.path)
	assert.NilError(t, err)
	return string(text)
}

// blockOf is the text of a tenant's block in a file.
func blockOf(text, name string) string {
	_, rest, _ := strings.Cut(text, "tenant \""+name+"\" {\n")
	block, _, _ := strings.Cut(rest, "\n}\n")
	return block
}

func assertCode(t *testing.T, err error, code sdk.Code) {
	t.Helper()
	assert.Check(t, is.Equal(sdk.CodeOf(err), code), "%v", err)
}

// quota is what is shown of one: what was set, and what has a default.
func quota(set map[string]any) map[string]any {
	set["max_snapshots"], set["max_snapshot_bytes"], set["max_paused"] = int64(20), int64(10<<30), int64(20)
	return set
}

func TestTenantsAreShown(t *testing.T) {
	c, d := startTenants(t)
	tenants, revision := c.Tenants()
	assert.Equal(t, revision, d.inForce.Revision)
	assert.Check(t, is.DeepEqual(tenants, []admin.Tenant{
		{
			Name: "acme", Providers: []string{"local"}, Tokens: []string{"1111111111111111", "2222222222222222"},
			Quota: quota(map[string]any{"max_concurrent": int64(4), "executions_per_day": int64(100)}),
		},
		{Name: "umbrella", Tokens: []string{"3333333333333333"}, Quota: quota(map[string]any{"max_concurrent": int64(4)})},
	}))
	one, _, err := c.Tenant("umbrella")
	assert.NilError(t, err)
	assert.Equal(t, one.Name, "umbrella")
	_, _, err = c.Tenant("nobody")
	assertCode(t, err, sdk.CodeNotFound)
}

func TestATenantIsAdded(t *testing.T) {
	c, d := startTenants(t)
	added, err := c.AddTenant(t.Context(), admin.TenantSettings{
		Name: "late", Providers: []string{"cloud", "local"},
		Quota: map[string]any{"execution_seconds_per_day": "10h", "requests_per_second": json.Number("0.5"), "max_concurrent": json.Number("7")},
	})
	assert.NilError(t, err)
	assert.Check(t, strings.HasPrefix(added.Token, "sbk_") && len(added.Token) == 47)
	sum := sha256.Sum256([]byte(added.Token))
	text := d.text(t)
	assert.Check(t, is.Contains(text, hex.EncodeToString(sum[:])))
	assert.Check(t, !strings.Contains(text, added.Token), "the file has the token itself")
	assert.Check(t, strings.HasPrefix(text, strings.TrimSuffix(withTenants, "\n")), "what was there has changed")
	late, revision, err := c.Tenant("late")
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(late, admin.Tenant{
		Name: "late", Providers: []string{"cloud", "local"}, Tokens: []string{added.ID},
		Quota: quota(map[string]any{"execution_seconds_per_day": 36000.0, "requests_per_second": 0.5, "max_concurrent": int64(7)}),
	}))
	assert.Equal(t, added.Reload.Revision, revision)
	assert.Equal(t, d.last.Operation, `tenant "late"`)
	another, err := c.AddToken(t.Context(), "late", nil)
	assert.NilError(t, err)
	assert.Check(t, another.Token != added.Token)

	before := d.text(t)
	_, err = c.AddTenant(t.Context(), admin.TenantSettings{Name: "acme"})
	assertCode(t, err, sdk.CodeConflict)
	_, err = c.AddTenant(t.Context(), admin.TenantSettings{Name: "Not a name"})
	assert.Check(t, is.ErrorContains(err, "Invalid name"))
	assert.Equal(t, d.text(t), before)
}

func TestATenantIsChanged(t *testing.T) {
	c, d := startTenants(t)
	change := func(name string, req admin.TenantSettings) {
		t.Helper()
		req.Name = name
		_, err := c.ChangeTenant(t.Context(), req)
		assert.NilError(t, err)
	}
	change("acme", admin.TenantSettings{Providers: []string{"cloud"}})
	assert.Check(t, is.Contains(blockOf(d.text(t), "acme"), `providers = ["cloud"]`))
	change("acme", admin.TenantSettings{Providers: []string{}})
	assert.Check(t, !strings.Contains(blockOf(d.text(t), "acme"), "providers"))
	assert.Check(t, is.Contains(blockOf(d.text(t), "acme"), "executions_per_day = 100"), "it was not named")

	change("acme", admin.TenantSettings{Quota: map[string]any{"executions_per_day": nil, "max_concurrent": json.Number("9")}})
	acme, _, err := c.Tenant("acme")
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(acme.Quota, quota(map[string]any{"max_concurrent": int64(9)})))
	change("umbrella", admin.TenantSettings{Quota: map[string]any{"max_instances": json.Number("2"), "executions_per_day": nil}})
	assert.Check(t, is.Contains(blockOf(d.text(t), "umbrella"), "quota {\n    max_instances = 2\n  }"))
	assert.Check(t, is.Contains(d.text(t), "# Ask Ada.\n"))

	before := d.text(t)
	_, err = c.ChangeTenant(t.Context(), admin.TenantSettings{
		Name: "acme", Providers: []string{"cloud", "absent"},
		Quota: map[string]any{"max_instances": "many", "executions": json.Number("1"), "max_cpus": json.Number("0")},
	})
	problems, ok := errors.AsType[admin.FieldErrors](err)
	assert.Assert(t, ok, "%v", err)
	assert.Check(t, is.DeepEqual(problems, admin.FieldErrors{
		{Field: "providers", Message: `has "absent", which is not the label of a provider in the configuration`},
		{Field: "quota.executions", Message: "is not a quota"},
		{Field: "quota.max_cpus", Message: "must be from 0.01 to 10000"},
		{Field: "quota.max_instances", Message: "must be a whole number"},
	}))
	_, err = c.ChangeTenant(t.Context(), admin.TenantSettings{Name: "nobody", Providers: []string{}})
	assertCode(t, err, sdk.CodeNotFound)
	_, err = c.ChangeTenant(t.Context(), admin.TenantSettings{Name: "acme", Providers: []string{"local"}, IfMatch: []string{"another"}})
	assertCode(t, err, sdk.CodeConflict)
	assert.Equal(t, d.text(t), before)
}

func TestAQuotaThatComesAndGoesLeavesNothing(t *testing.T) {
	c, d := startTenants(t)
	change := func(name string, quota map[string]any) {
		t.Helper()
		_, err := c.ChangeTenant(t.Context(), admin.TenantSettings{Name: name, Quota: quota})
		assert.NilError(t, err)
	}
	change("umbrella", map[string]any{"max_instances": json.Number("2"), "max_cpus": json.Number("1")})
	change("umbrella", map[string]any{"max_instances": nil})
	assert.Check(t, is.Contains(blockOf(d.text(t), "umbrella"), "quota"))
	change("umbrella", map[string]any{"max_cpus": nil})
	assert.Equal(t, d.text(t), withTenants)
	change("acme", map[string]any{"executions_per_day": nil})
	assert.Equal(t, d.text(t), strings.Replace(withTenants, "  quota { executions_per_day = 100 }\n", "", 1))
}

func TestTokensComeAndGo(t *testing.T) {
	c, d := startTenants(t)
	tokens := func(name string) []string {
		t.Helper()
		shown, _, err := c.Tenant(name)
		assert.NilError(t, err)
		return shown.Tokens
	}
	rotated, err := c.RotateToken(t.Context(), "acme", "2222222222222222", nil)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(tokens("acme"), []string{"1111111111111111", rotated.ID}))
	sum := sha256.Sum256([]byte(rotated.Token))
	assert.Equal(t, rotated.ID, admin.TokenID(sum))
	assert.Check(t, is.Contains(d.text(t), "# in use"))

	_, err = c.RevokeToken(t.Context(), "acme", "1111111111111111", nil)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(tokens("acme"), []string{rotated.ID}))
	_, err = c.RevokeToken(t.Context(), "acme", rotated.ID, nil)
	assertCode(t, err, sdk.CodeConflict)
	only, err := c.RotateToken(t.Context(), "umbrella", "3333333333333333", nil)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(tokens("umbrella"), []string{only.ID}))

	for _, id := range []string{"", "1111111111111111", "111", only.ID} {
		_, err = c.RevokeToken(t.Context(), "acme", id, nil)
		assertCode(t, err, sdk.CodeNotFound)
		_, err = c.RotateToken(t.Context(), "acme", id, nil)
		assertCode(t, err, sdk.CodeNotFound)
	}
	_, err = c.AddToken(t.Context(), "nobody", nil)
	assertCode(t, err, sdk.CodeNotFound)
	_, err = c.RotateToken(t.Context(), "nobody", only.ID, nil)
	assertCode(t, err, sdk.CodeNotFound)
}

func TestATenantIsRemoved(t *testing.T) {
	c, d := startTenants(t)
	_, err := c.RemoveTenant(t.Context(), "nobody", nil)
	assertCode(t, err, sdk.CodeNotFound)
	_, err = c.RemoveTenant(t.Context(), "acme", nil)
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(d.text(t), "acme") && !strings.Contains(d.text(t), "Ada"))
	_, err = c.RemoveTenant(t.Context(), "umbrella", nil)
	assert.Check(t, is.ErrorContains(err, "No tenant"), "somebody must be let in")
	assert.Check(t, is.Contains(d.text(t), "umbrella"))
}

// A token that is in force nowhere must not be given out.
func TestAChangeThatIsRefusedGivesNoToken(t *testing.T) {
	c, d := startTenants(t)
	d.refuse = sdk.Errorf(sdk.CodeUnavailable, "the broker is stopping")
	for name, ask := range map[string]func() (admin.NewToken, error){
		"add a tenant":   func() (admin.NewToken, error) { return c.AddTenant(t.Context(), admin.TenantSettings{Name: "late"}) },
		"add a token":    func() (admin.NewToken, error) { return c.AddToken(t.Context(), "acme", nil) },
		"rotate a token": func() (admin.NewToken, error) { return c.RotateToken(t.Context(), "acme", "1111111111111111", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			made, err := ask()
			assertCode(t, err, sdk.CodeUnavailable)
			assert.Equal(t, made.Token, "")
			assert.Equal(t, d.text(t), withTenants)
		})
	}
}
