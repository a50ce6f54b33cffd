package config_test

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestSecretsAreWhatASettingHasFromElsewhere(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) { return "value-of-" + name, name == "A" || name == "B" }
	for name, c := range map[string]struct {
		settings string
		want     []string
	}{
		"none":           {`region = "europe"`, nil},
		"a text":         {`region = env("A")`, []string{"value-of-A"}},
		"a part of one":  {`region = "Bearer ${env("A")}"`, []string{"Bearer value-of-A", "value-of-A"}},
		"a map":          {`labels = { zone = "europe", key = env("A") }`, []string{"value-of-A"}},
		"a name in it":   {`labels = { (env("A")) = "europe" }`, []string{"value-of-A"}},
		"a list":         {`zones = [env("B"), "europe", env("A"), env("B")]`, []string{"value-of-A", "value-of-B"}},
		"a choice":       {`region = env("A") == "x" ? "one-way" : "other-way"`, []string{"other-way"}},
		"what is hidden": {"region = env(\"UNSET\", \"a default\")", []string{"a default"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := "provider \"x\" {\n  " + c.settings + "\n}\ntenant \"demo\" {\n  token_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]\n}\n"
			cfg, diags := config.Parse("x.hcl", []byte(src), config.WithEnv(env))
			assert.Assert(t, !diags.HasErrors(), "%v", diags)
			got := cfg.Providers[0].Secrets()
			assert.DeepEqual(t, got, c.want)
			assert.Assert(t, slices.IsSorted(got))
		})
	}
}
