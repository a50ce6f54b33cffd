package config_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// secret is a part of every secret in testdata; no output may hold it.
const secret = "hunter2"

// fullSchema has a field of every type.
func fullSchema() sdk.Schema {
	return sdk.Schema{
		{Name: "region", Type: sdk.TypeString, Default: "us", Options: []string{"us", "eu"}},
		{Name: "hostname", Type: sdk.TypeString, Pattern: `[a-z0-9-]+`, Description: "A host name without its domain."},
		{Name: "api_key", Type: sdk.TypeString, Secret: true, Min: sdk.Bound(10), Max: sdk.Bound(60)},
		{Name: "pool_size", Type: sdk.TypeInteger, Default: int64(10), Min: sdk.Bound(0), Max: sdk.Bound(100)},
		{Name: "cpus", Type: sdk.TypeNumber, Min: sdk.Bound(0.1), Description: "Cores of each sandbox."},
		{Name: "verbose", Type: sdk.TypeBoolean},
		{Name: "idle", Type: sdk.TypeDuration, Max: sdk.Bound(86400)},
		{Name: "mounts", Type: sdk.TypeList, Min: sdk.Bound(1)},
		{Name: "labels", Type: sdk.TypeMap},
		{Name: "headers", Type: sdk.TypeMap, Secret: true},
		{Name: "tokens", Type: sdk.TypeList, Secret: true},
		{Name: "auth", Type: sdk.TypeBlock, Description: "Who the broker is.", Fields: sdk.Schema{
			{Name: "user", Type: sdk.TypeString, Default: "me", Max: sdk.Bound(30)},
			{Name: "password", Type: sdk.TypeString, Required: true, Secret: true, Min: sdk.Bound(20)},
			{Name: "listen", Type: sdk.TypeString, Secret: true, Max: sdk.Bound(5)},
		}},
		{Name: "rules", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(3), Fields: sdk.Schema{
			{Name: "ports", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeInteger}},
			{Name: "limit", Type: sdk.TypeBlock, Fields: sdk.Schema{
				{Name: "rate", Type: sdk.TypeNumber, Required: true, Max: sdk.Bound(10), Description: "Requests a second."},
				{Name: "key", Type: sdk.TypeString, Secret: true},
			}},
		}},
	}
}

func schemaOf(plugin string) sdk.Schema {
	if plugin == "cloud" {
		return sdk.Schema{{
			Name: "api_key", Type: sdk.TypeString, Required: true, Secret: true,
			Description: "The key of your account.",
		}}
	}
	return fullSchema()
}

// testKey seals what is sealed in testdata.
const testKey = "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

func testEnv(name string) (string, bool) {
	value, set := map[string]string{
		"API_KEY": secret + " from the environment", "REGION": "eu", config.KeysVariable: testKey,
	}[name]
	return value, set
}

// TestFiles reads every testdata/*.hcl and compares what comes out with the
// .diag file beside it. To add a case, add a file and run the test with
// -update.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.hcl")
	assert.NilError(t, err)
	assert.Assert(t, len(files) >= 35)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".hcl")
		t.Run(name, func(t *testing.T) {
			cfg, diags := config.Load(file, config.WithEnv(testEnv), config.WithPluginDir("/usr/lib/plugins"))
			var out strings.Builder
			diags = diags.With(settingsOf(t, cfg, &out))
			if diags.HasErrors() {
				out.Reset()
			}
			assert.NilError(t, diags.Write(&out, config.Style{Width: 100}))
			for _, text := range []string{out.String(), diags.Error()} {
				if !strings.HasPrefix(name, "ok_") {
					assert.Assert(t, !strings.Contains(text, secret), "%s", text)
				}
				assert.Assert(t, !strings.Contains(text, "\x1b"), "%q", text)
			}
			golden.Assert(t, out.String(), name+".diag")
		})
	}
}

// settingsOf decodes the settings of all providers and dumps the configuration.
func settingsOf(t *testing.T, cfg *config.Config, out *strings.Builder) config.Diagnostics {
	t.Helper()
	working, err := os.Getwd()
	assert.NilError(t, err)
	fmt.Fprintf(out, "listen %s, state %s, plugins %s\n", cfg.Listen, strings.Replace(cfg.StateDir, working, "/wd", 1), cfg.PluginDir)
	if cfg.Metrics.Listen != "" {
		fmt.Fprintf(out, "metrics listen %s\n", cfg.Metrics.Listen)
	}
	if len(cfg.Admin.TokenSHA256) > 0 {
		fmt.Fprintf(out, "admin: tokens %x\n", cfg.Admin.TokenSHA256)
	}
	fmt.Fprintf(out, "log    %+v\nlimits %+v\nactive %s\n", cfg.Log, cfg.Limits, cfg.ActiveProvider)
	if len(cfg.FallbackProviders) > 0 {
		fmt.Fprintf(out, "fallback %q\n", cfg.FallbackProviders)
	}
	var diags config.Diagnostics
	for _, p := range cfg.Providers {
		settings, ds := p.Settings(schemaOf(p.Plugin))
		diags = append(diags, ds...)
		fmt.Fprintf(out, "provider %s: plugin %s, sha256 %q, env %q\n", p.Label, p.Plugin, p.SHA256, p.Env)
		if p.CostPerSecond > 0 {
			fmt.Fprintf(out, "  costs %v a second\n", p.CostPerSecond)
		}
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			fmt.Fprintf(out, "  %s = %#v\n", name, settings[name])
		}
	}
	for _, door := range cfg.FrontDoors {
		fmt.Fprintf(out, "front door %+v\n", door)
	}
	for _, tenant := range cfg.Tenants {
		fmt.Fprintf(out, "tenant %s: tokens %x, providers %q\n", tenant.Name, tenant.TokenSHA256, tenant.Providers)
		if usual := (config.Quota{MaxConcurrent: 10}); tenant.Quota != usual {
			fmt.Fprintf(out, "  quota %+v\n", tenant.Quota)
		}
	}
	return diags
}

func TestListenAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:9385": true, ":9385": true, "[::1]:0": true, "localhost:80": true, "a.b-c.d:65535": true,
		"": false, "127.0.0.1": false, "9385": false, ":http": false, ":65536": false, ":-1": false, ":+80": false,
		":080": false, "::1:80": false, "a b:80": false, "http://x:80": false, "x:80/path": false, "-x:80": false, "unix:/x": false,
	} {
		t.Run(address, func(t *testing.T) {
			_, diags := config.Parse("x.hcl", []byte(fmt.Sprintf("listen = %q\n%s", address, smallest)))
			assert.Equal(t, !diags.HasErrors(), ok, "%v", diags)
		})
	}
}

const smallest = `
provider "full" {}
tenant "demo" { token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] }
`

func TestDirectoriesAreRelativeToTheFile(t *testing.T) {
	dir := fs.NewDir(t, "config", fs.WithFile("sandbox.hcl", `
		state      = "var/../state"
		plugin_dir = "plug"
		`+smallest))
	cfg, diags := config.Load(dir.Join("sandbox.hcl"))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, cfg.StateDir, dir.Join("state"))
	assert.Equal(t, cfg.PluginDir, dir.Join("plug"))
}

func TestThePluginDirectoryIsBesideTheExecutable(t *testing.T) {
	cfg, diags := config.Parse("x.hcl", []byte(smallest))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	executable, err := os.Executable()
	assert.NilError(t, err)
	assert.Equal(t, cfg.PluginDir, filepath.Join(filepath.Dir(executable), "plugins"))
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := fs.NewDir(t, "config", fs.WithFile("large.hcl", strings.Repeat("# comment\n", 30000)))
	for path, want := range map[string]string{
		dir.Join("none.hcl"):  "No such file or directory.",
		dir.Path():            "Not a regular file.",
		"/dev/zero":           "Not a regular file.",
		dir.Join("large.hcl"): "Larger than 256 KiB.",
	} {
		_, diags := config.Load(path)
		assert.Assert(t, diags.HasErrors() && len(diags) == 1)
		assert.Equal(t, diags[0].Detail, want)
		assert.Equal(t, diags[0].File, path)
	}
}

func TestTheFileThatComesWithTheBrokerIsRight(t *testing.T) {
	cfg, diags := config.Load("../sandbox.hcl")
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Equal(t, cfg.Listen, "127.0.0.1:9385")
	assert.Equal(t, cfg.ActiveProvider, "self_managed")
	assert.Equal(t, cfg.Tenants[0].Name, "demo")
}

// What overflows the stack ends the process, so these show that it does not.
func TestDeepAndLongExpressions(t *testing.T) {
	t.Parallel()
	const n = 60_000
	for _, expression := range []string{
		strings.Repeat("(", n), strings.Repeat("[", n), strings.Repeat("{a=", n/2), strings.Repeat("!", n) + "true",
		strings.Repeat("-", n) + "1", strings.Repeat(`"${`, n/2), strings.Repeat("1+", n) + "1",
		strings.Repeat("true?1:", n/4) + "1", strings.Repeat("! -", n/2), "a" + strings.Repeat("[0]", n/2), strings.Repeat("%{if ", n/4),
		"a" + strings.Repeat(".*", n/2), strings.Repeat("f(", n), strings.Repeat("<<A\n", n/4),
	} {
		_, diags := config.Parse("x.hcl", []byte("listen = "+expression+"\n"+smallest))
		assert.Assert(t, diags.HasErrors())
	}
}
