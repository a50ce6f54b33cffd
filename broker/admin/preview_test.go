package admin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const twoProviders = `key_file = "keys"
# The first.
provider "a" {
  api_key = "s3cret-of-a-1234"
  size    = 2
}
provider "b" {}
providers { active = "a" }
`

func TestAPreviewChangesNothing(t *testing.T) {
	d := newDaemon(t, twoProviders)
	c := admin.NewConfigurator(d)
	for name, test := range map[string]struct {
		preview func() (admin.Preview, error)
		wants   []string
	}{
		"of settings": {func() (admin.Preview, error) {
			return c.PreviewProvider(t.Context(), admin.ProviderSettings{Provider: "a", Settings: map[string]any{"size": json.Number("3"), "api_key": "s3cret-new-5678"}})
		}, []string{"/sandbox.hcl\n+++ /", "\n-  size    = 2\n", "\n+  size    = 3\n", "\n-  api_key = \"****1234\"\n", "\n+  api_key = sealed(\"…\")\n"}},
		"of the active one": {func() (admin.Preview, error) {
			return c.PreviewActivation(t.Context(), admin.Activation{Provider: "b"})
		}, []string{"\n-providers { active = \"a\" }\n+providers { active = \"b\" }\n"}},
		"of a new tenant": {func() (admin.Preview, error) {
			return c.PreviewNewTenant(t.Context(), admin.TenantSettings{Name: "new"})
		}, []string{"\n+tenant \"new\" {\n"}},
		"of a tenant": {func() (admin.Preview, error) {
			return c.PreviewTenant(t.Context(), admin.TenantSettings{Name: "t", Providers: []string{"b"}})
		}, []string{"providers    = [\"b\"]"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := d.text()
			p, err := test.preview()
			assert.NilError(t, err)
			assert.Equal(t, p.Reload.Result(), "would_apply")
			assert.Equal(t, p.Reload.Trigger, admin.TriggerAPI)
			assert.Equal(t, p.Revision, d.InForce().Config.Revision)
			for _, want := range test.wants {
				assert.Check(t, is.Contains(p.Difference, want))
			}
			assert.Check(t, !strings.Contains(p.Difference, "s3cret"))
			assert.Check(t, !strings.Contains(p.Difference, strings.Repeat("a", 17)), "sums of tokens are shortened")
			assert.Equal(t, d.text(), before)
			assert.Check(t, is.Len(d.applied, 0))
		})
	}
	p, err := c.PreviewActivation(t.Context(), admin.Activation{Provider: "a"})
	assert.NilError(t, err)
	assert.Equal(t, p.Reload.Result(), "unchanged")
	assert.Equal(t, p.Difference, "")
}

func TestAPreviewOfWhatWouldBeRefused(t *testing.T) {
	d := newDaemon(t, twoProviders)
	c := admin.NewConfigurator(d)
	p, err := c.PreviewRemoval(t.Context(), "t", nil) // the only one there is
	assert.NilError(t, err)
	assert.Equal(t, p.Reload.Result(), "refused")
	assert.Check(t, is.Contains(p.Difference, "\n-tenant \"t\" {"))
	_, err = c.PreviewTenant(t.Context(), admin.TenantSettings{Name: "nobody"})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	_, err = c.PreviewActivation(t.Context(), admin.Activation{Provider: "b", IfMatch: []string{"x"}})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
	_, err = c.PreviewProvider(t.Context(), admin.ProviderSettings{Provider: "a", Settings: map[string]any{"size": json.Number("0")}})
	assert.ErrorContains(t, err, "size")
}

func TestAGenerationIsRestored(t *testing.T) {
	d := newDaemon(t, twoProviders)
	c := admin.NewConfigurator(d)
	first := d.text()
	_, err := c.Activate(t.Context(), admin.Activation{Provider: "b"})
	assert.NilError(t, err)
	second := d.text()
	d.write("# by hand\n" + second)
	before := d.InForce().Number

	p, err := c.PreviewRestore(t.Context(), 1, nil)
	assert.NilError(t, err)
	assert.Equal(t, p.Reload.Operation, "restore")
	assert.Check(t, is.Contains(p.Difference, "\n-# by hand\n"))
	assert.Check(t, is.Contains(p.Difference, "+providers { active = \"a\" }"))
	assert.Check(t, !strings.Contains(p.Difference, "s3cret"))
	assert.Equal(t, d.InForce().Number, before)

	_, err = c.Restore(t.Context(), 1, []string{"x"})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
	_, err = c.Restore(t.Context(), 99, nil)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	outcome, err := c.Restore(t.Context(), 1, []string{p.Revision})
	assert.NilError(t, err)
	assert.Equal(t, d.text(), first, "byte for byte")
	assert.Equal(t, outcome.Reload.Operation, "restore")
	assert.Equal(t, outcome.Reload.Trigger, admin.TriggerAPI)
	assert.Equal(t, outcome.Reload.Generation, before+1)
	_, err = c.Restore(t.Context(), 2, nil)
	assert.NilError(t, err)
	assert.Equal(t, d.text(), second)
}

func TestOtherFilesThanThoseOfTheGenerationAreAConflict(t *testing.T) {
	d := newDaemon(t, twoProviders)
	c := admin.NewConfigurator(d)
	d.write("include = [\"conf.d/*.hcl\"]\n" + d.text())
	d.include("conf.d/more.hcl", "log {}\n")
	_, err := c.Restore(t.Context(), 1, nil)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
	assert.ErrorContains(t, err, "other files than that generation had")
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	d := newDaemon(t, twoProviders)
	cfg := d.InForce().Config
	var texts admin.Texts
	for n := 1; n <= 60; n++ {
		texts.Keep(n, cfg)
	}
	assert.Assert(t, texts.Of(10) == nil && texts.Of(11) != nil && texts.Of(60) != nil)
	d.write("# another file\n" + d.text())
	texts.Keep(61, cfg)
	assert.Assert(t, texts.Of(61) == nil, "the files are not those of the generation")
	assert.Assert(t, texts.Of(60) != nil)

	// 16 MiB in all; a configuration is at most 256 KiB a file.
	big := newDaemon(t, twoProviders+"# "+strings.Repeat("x", 250<<10)+"\n")
	many := big.InForce().Config
	var few admin.Texts
	for n := 1; n <= 100; n++ {
		few.Keep(n, many)
	}
	assert.Assert(t, few.Of(100) != nil)
	size := 0
	for n := range 101 {
		for _, f := range few.Of(n) {
			size += len(f.Text)
		}
	}
	assert.Assert(t, size <= 16<<20, "%d", size)
}
