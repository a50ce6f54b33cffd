package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func addTestdata(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.hcl")
	assert.NilError(f, err)
	for _, file := range files {
		src, err := os.ReadFile(file)
		assert.NilError(f, err)
		f.Add(string(src), smallest)
		f.Add(includeAll, string(src))
	}
}

// FuzzParse checks that no file, nor one that it includes, ends the process, and
// that every diagnostic can be shown.
func FuzzParse(f *testing.F) {
	addTestdata(f)
	dir := fs.NewDir(f, "config", fs.WithDir("conf.d", fs.WithFile("a.hcl", "")))
	f.Fuzz(func(t *testing.T, src, included string) {
		cfg, diags := config.Parse(dir.Join("x.hcl"), []byte(src), config.WithEnv(testEnv),
			config.WithContent(dir.Join("conf.d/a.hcl"), []byte(included)))
		assert.Assert(t, len(cfg.Revision) == 64 && len(cfg.Files()) > 0)
		for _, d := range diags {
			if d.Excerpt.From < 0 || d.Excerpt.From > d.Excerpt.To || d.Excerpt.To > len(d.Excerpt.Text) {
				t.Fatalf("excerpt %+v", d.Excerpt)
			}
		}
		var out strings.Builder
		assert.NilError(t, diags.Write(&out, config.Style{Width: 80}))
		if diags.HasErrors() {
			return
		}
		if cfg.ActiveProvider == "" || len(cfg.Providers) == 0 || len(cfg.Tenants) == 0 ||
			cfg.Limits.DefaultTimeout <= 0 || cfg.Limits.DefaultTimeout > cfg.Limits.MaxTimeout ||
			cfg.Limits.Output <= 0 || cfg.Provider(cfg.ActiveProvider) == nil {
			t.Fatalf("accepted: %+v", cfg)
		}
		for _, door := range cfg.FrontDoors {
			if !strings.HasPrefix(door.Path, "/") || strings.HasPrefix(door.Path+"/", "/api/") ||
				door.Wait > cfg.Limits.MaxWait || door.Timeout > cfg.Limits.MaxTimeout ||
				door.Provider != "" && cfg.Provider(door.Provider) == nil {
				t.Fatalf("accepted: %+v", door)
			}
		}
		for _, p := range cfg.Providers {
			if settings, diags := p.Settings(fullSchema()); !diags.HasErrors() {
				_, err := wire.EncodeSettings(settings)
				assert.NilError(t, err)
			}
		}
	})
}

// FuzzSettings checks that no schema of a plugin panics, and that a secret
// literal is repeated nowhere.
func FuzzSettings(f *testing.F) {
	f.Add("a", "string", `\Q`, "x", 1.0, 2.0, true)
	f.Add("api_key", "map", "", "", 0.0, 0.0, false)
	f.Add("api_key", "string", "[a-z]+", "hunter", -1.0, 5.0, true)
	src := []byte("provider \"x\" {\n  api_key = \"" + secret + "\"\n  a = 5\n}\n" + "tenant \"demo\" {\n token_sha256 = [\"" + strings.Repeat("a", 64) + "\"]\n}\n")
	f.Fuzz(func(t *testing.T, name, kind, pattern, option string, low, high float64, required bool) {
		cfg, diags := config.Parse("x.hcl", src)
		assert.Assert(t, !diags.HasErrors())
		if strings.Contains(name+kind+pattern+option, secret[:4]) {
			return // the schema itself says it
		}
		schema := sdk.Schema{
			{Name: "a", Type: sdk.TypeInteger, Max: &high},
			{Name: name, Type: sdk.FieldType(kind), Pattern: pattern, Min: &low, Max: &high, Required: required, Secret: true},
		}
		if option != "" {
			schema[1].Options = []string{option}
		}
		settings, diags := cfg.Providers[0].Settings(schema)
		assert.Equal(t, settings == nil, diags.HasErrors())
		var out strings.Builder
		assert.NilError(t, diags.Write(&out, config.Style{}))
		assert.Assert(t, !strings.Contains(out.String(), secret), "%s", out.String())
	})
}
