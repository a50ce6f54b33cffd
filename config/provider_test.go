package config_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// providerWith parses a file whose one provider block has a body.
func providerWith(t *testing.T, body string) *config.Provider {
	t.Helper()
	src := "provider \"x\" {\n" + body + "\n}\n" +
		"tenant \"demo\" {\n  token_sha256 = [\"" + strings.Repeat("a", 64) + "\"]\n}\n"
	cfg, diags := config.Parse("x.hcl", []byte(src), config.WithEnv(testEnv))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	return cfg.Providers[0]
}

func TestSettingsHaveTheTypesOfTheSchema(t *testing.T) {
	for body, want := range map[string]any{
		`region = "eu"`:                     "eu",
		`api_key = "0123456789"`:            "0123456789",
		`api_key = env("API_KEY")`:          secret + " from the environment",
		`pool_size = 7`:                     int64(7),
		`pool_size = 7.0`:                   int64(7),
		`pool_size = 3 + 4`:                 int64(7),
		`cpus = 2`:                          2.0,
		`cpus = 0.25`:                       0.25,
		`verbose = !true`:                   false,
		`idle = "1h30m"`:                    90 * time.Minute,
		`idle = 90`:                         90 * time.Second,
		`idle = 0.29`:                       290 * time.Millisecond,
		`mounts = ["a", env("A", "b")]`:     []string{"a", "b"},
		`labels = {}`:                       map[string]string{},
		`labels = { a = "1", "b c" : "2" }`: map[string]string{"a": "1", "b c": "2"},
	} {
		t.Run(body, func(t *testing.T) {
			settings, diags := providerWith(t, body).Settings(fullSchema())
			assert.Assert(t, len(diags) == 0, "%v", diags)
			name, _, _ := strings.Cut(body, " ")
			assert.DeepEqual(t, settings[name], want)
			_, err := wire.EncodeSettings(settings)
			assert.NilError(t, err)
		})
	}
}

func TestStringsAndNumbersAreNotConvertedIntoEachOther(t *testing.T) {
	for _, body := range []string{
		`region = 5`, `region = true`, `pool_size = "7"`, `pool_size = true`, `cpus = "0.5"`, `verbose = "true"`,
		`verbose = 1`, `mounts = [1]`, `mounts = {}`, `labels = []`, `labels = { a = null }`, `mounts = [null]`, `idle = "90"`,
	} {
		t.Run(body, func(t *testing.T) {
			settings, diags := providerWith(t, body).Settings(fullSchema())
			assert.Equal(t, len(diags), 1)
			assert.Assert(t, settings == nil)
			assert.Equal(t, diags[0].Start.Line, 2)
		})
	}
}

func TestAHostileSchemaIsADiagnosticAndNoPanic(t *testing.T) {
	long := make(sdk.Schema, 201)
	for i := range long {
		long[i] = sdk.Field{Name: fmt.Sprintf("f%d", i), Type: sdk.TypeString}
	}
	for name, schema := range map[string]sdk.Schema{
		"an empty name":              {{Type: sdk.TypeString}},
		"a reserved name":            {{Name: "sha256", Type: sdk.TypeString}},
		"a name twice":               {{Name: "a", Type: sdk.TypeString}, {Name: "a", Type: sdk.TypeMap}},
		"an unknown type":            {{Name: "a", Type: "any"}},
		"a pattern that breaks out":  {{Name: "a", Type: sdk.TypeString, Pattern: `\Qabc`}},
		"a pattern with a bracket":   {{Name: "a", Type: sdk.TypeString, Pattern: `a)|(b`}},
		"a bound that is no number":  {{Name: "a", Type: sdk.TypeInteger, Min: sdk.Bound(math.NaN())}},
		"a default of another type":  {{Name: "a", Type: sdk.TypeInteger, Default: "1"}},
		"too many fields":            long,
		"terminal escapes in a name": {{Name: "\x1b[2Ja", Type: sdk.TypeString}},
	} {
		t.Run(name, func(t *testing.T) {
			settings, diags := providerWith(t, `a = "abc"`).Settings(schema)
			assert.Assert(t, settings == nil)
			assert.Equal(t, len(diags), 1)
			assert.Equal(t, diags[0].Summary, "Plugin not usable")
			var out strings.Builder
			assert.NilError(t, diags.Write(&out, config.Style{}))
			assert.Assert(t, !strings.Contains(out.String(), "\x1b"))
		})
	}
}

func TestSettingsCanBeReadAgain(t *testing.T) {
	p := providerWith(t, `pool_size = 5`)
	first, _ := p.Settings(fullSchema())
	_, diags := p.Settings(sdk.Schema{})
	assert.Equal(t, len(diags), 1)
	again, _ := p.Settings(fullSchema())
	assert.Assert(t, maps.Equal(first, again))
}

func TestAPluginsComplaintPointsAtTheSetting(t *testing.T) {
	p := providerWith(t, "api_key = \"hunter2-and-more\"\npool_size = 5\nlabels = { a = env(\"API_KEY\") }")
	for name, test := range map[string]struct {
		err     error
		line    int
		excerpt string
		detail  string
	}{
		"a setting":                 {sdk.FieldErrorf(sdk.CodeInvalidConfig, "pool_size", "more than the machine bears"), 3, "pool_size = 5", "more than the machine bears"},
		"a wrapped error":           {fmt.Errorf("configure: %w", sdk.FieldErrorf(sdk.CodeInvalidConfig, "pool_size", "too many")), 3, "pool_size = 5", "too many"},
		"a part of a setting":       {sdk.FieldErrorf(sdk.CodeInvalidConfig, "labels.a", "bad"), 4, "labels = (hidden)", "labels.a"},
		"a secret that is repeated": {sdk.FieldErrorf(sdk.CodeInvalidConfig, "api_key", "hunter2-and-more is wrong"), 2, "api_key = (hidden)", "(hidden) is wrong"},
		"a secret from elsewhere":   {sdk.Errorf(sdk.CodeConnectionFailed, "key hunter2 from the environment"), 1, "provider \"x\" {", "key (hidden)"},
		"a setting not given":       {sdk.FieldErrorf(sdk.CodeInvalidConfig, "region", "is needed here"), 1, "provider \"x\" {", "region: is needed here"},
		"no setting":                {sdk.Errorf(sdk.CodeConnectionFailed, "no route"), 1, "provider \"x\" {", "no route"},
		"an error without a code":   {errors.New("hunter2-and-more"), 1, "provider \"x\" {", "(hidden)"},
		"a deadline":                {context.DeadlineExceeded, 1, "provider \"x\" {", "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			diags := p.Diagnose(test.err, fullSchema())
			assert.Equal(t, len(diags), 1)
			assert.Assert(t, diags.HasErrors())
			assert.Equal(t, diags[0].Start.Line, test.line)
			assert.Equal(t, diags[0].Excerpt.Text, test.excerpt)
			assert.Assert(t, strings.Contains(diags[0].Detail, test.detail), diags[0].Detail)
			assert.Assert(t, !strings.Contains(diags.Error(), secret))
		})
	}
	assert.Assert(t, p.Diagnose(nil, fullSchema()) == nil)
	diags := p.Diagnose(sdk.Errorf(sdk.CodeNotInitialized, `provider "x": there is no plugin "x"`), fullSchema())
	assert.Equal(t, diags[0].Detail, `SB001: there is no plugin "x"`, "the diagnostic names the provider already")
}

// What a whole configuration holds beside the provider blocks does not matter,
// whichever blocks there are.
func TestProvidersAreReadFromAWholeConfiguration(t *testing.T) {
	src := "key_file = \"none\"\nlisten = 5\nprovider \"full\" {\n  pool_size = 3\n}\n"
	for _, block := range config.Blocks() {
		switch {
		case block.Type == "" || block.Type == "provider":
		case len(block.Kinds) > 0:
			src += fmt.Sprintf("%s %q {\n  x = 5\n}\n", block.Type, block.Kinds[0].Name)
		case block.Label == "":
			src += block.Type + " {\n  x = 5\n}\n"
		default:
			src += block.Type + " \"x\" {\n  x = 5\n}\n"
		}
	}
	dir := fs.NewDir(t, "config", fs.WithFile("x.hcl", src))
	providers, diags := config.LoadProviders(dir.Join("x.hcl"))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, len(providers), 1)
	_, diags = config.LoadProviders("../sandbox.hcl")
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
}
