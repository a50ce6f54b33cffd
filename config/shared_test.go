package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	sharedText = "tenant \"acme\" {\n  token_sha256 = [\"80f196a8c8fcbdecce7c3c1d44bcd50539617f29e98e5162ca24f75c693e1936\"]\n}\nprovider \"mock\" {\n}\n"
	ownText    = "state   = \"postgres://broker@db.example.com/sandbox\"\ndata    = \"d\"\ninclude = [\"shared.hcl\"]\n"
)

// loadShared reads a main file and the shared one that it names.
func loadShared(t *testing.T, own, shared string) (*config.Config, config.Diagnostics) {
	t.Helper()
	dir, authority := t.TempDir(), certtest.NewAuthority(t)
	authority.Issue("127.0.0.1").Write(t, dir)
	for name, text := range map[string]string{"ca.pem": string(authority.PEM), "sandbox.hcl": own, "shared.hcl": shared} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return config.Load(filepath.Join(dir, "sandbox.hcl"), config.WithEnv(func(name string) (string, bool) { return "secret", name == "KEY" }))
}

func TestOneFileIsShared(t *testing.T) {
	own := ownText + strings.Replace(peersBlock, "peers {", "peers {\n  shared_file = \"shared.hcl\"", 1)
	cfg, diags := loadShared(t, own, sharedText)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	path, text := cfg.Shared()
	assert.Equal(t, filepath.Base(path), "shared.hcl")
	assert.Equal(t, string(text), sharedText)
	alone, diags := loadShared(t, ownText+peersBlock, sharedText)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	path, _ = alone.Shared()
	assert.Equal(t, path, "")
}

func TestWhatIsOneMachinesIsNotShared(t *testing.T) {
	named := func(name string) string {
		return strings.Replace(peersBlock, "peers {", "peers {\n  shared_file = \""+name+"\"", 1)
	}
	for name, c := range map[string]struct{ own, shared, summary, wants string }{
		"an address":             {shared: "listen = \"127.0.0.1:1\"\n", summary: "Not to be shared", wants: "listen is each broker's own"},
		"where it logs":          {shared: "log {\n  level = \"debug\"\n}\n", summary: "Not to be shared", wants: "A block log is each broker's own"},
		"a front door's address": {shared: "front_door \"e2b\" {\n  listen = \"127.0.0.1:1\"\n}\n", summary: "Not to be shared", wants: "An address is each broker's own"},
		"a secret as it is": {
			shared:  "tenant \"late\" {\n  token_sha256 = [\"2a745c00e7ccd079979b1e03b478d91bcacffee9cdf15b88e8c172ad2a7ba28c\"]\n  webhooks {\n    allow = [\"hooks.example.com\"]\n    secret = \"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\"\n  }\n}\n",
			summary: "Secret in the open", wants: "secret is a secret, and the database would have it",
		},
		"a file that is not there": {own: ownText + named("other.hcl"), summary: "File not included", wants: "one of the files that include brings in"},
		"the main file":            {own: ownText + named("sandbox.hcl"), summary: "File not included", wants: "one of the files that include brings in"},
		"a state in a file":        {own: "include = [\"shared.hcl\"]\n" + named("shared.hcl"), summary: "Of no use", wants: "through their database"},
	} {
		t.Run(name, func(t *testing.T) {
			own := c.own
			if own == "" {
				own = ownText + named("shared.hcl")
			}
			_, diags := loadShared(t, own, sharedText+c.shared)
			assert.Assert(t, diags.HasErrors())
			assert.Check(t, is.Equal(diags[0].Summary, c.summary), "%v", diags)
			assert.Check(t, is.Contains(diags[0].Detail, c.wants))
		})
	}
	cfg, diags := loadShared(t, ownText+named("shared.hcl"), strings.Replace(sharedText, "provider \"mock\" {", "provider \"mock\" {\n  api_key = env(\"KEY\")\n  token = \"in the open\"\n  auth {\n    password = \"in the open\"\n  }", 1))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	open := cfg.OpenSecrets(cfg.Provider("mock"), sdk.Schema{
		{Name: "api_key", Type: sdk.TypeString, Secret: true},
		{Name: "token", Type: sdk.TypeString, Secret: true},
		{Name: "auth", Type: sdk.TypeBlock, Fields: sdk.Schema{{Name: "password", Type: sdk.TypeString, Secret: true}}},
	})
	assert.Equal(t, len(open), 2, "%v", open)
	assert.Check(t, is.Contains(open[0].Detail, "token is a secret"))
	assert.Check(t, is.Contains(open[1].Detail, "password is a secret"))
}
