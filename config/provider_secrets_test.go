package config_test

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestSecretsAreWhatASettingHasFromElsewhere(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		values := map[string]string{"A": "va1ue-of-A", "B": "va1ue-of-B", "REGION": "eu-west-1", "THE_TOKEN": "letmein"}
		value, set := values[name]
		return value, set
	}
	for name, c := range map[string]struct {
		settings string
		want     []string
	}{
		"none":           {`region = "europe"`, nil},
		"a text":         {`region = env("A")`, []string{"va1ue-of-A"}},
		"a part of one":  {`region = "Bearer ${env("A")}"`, []string{"Bearer va1ue-of-A", "va1ue-of-A"}},
		"a map":          {`labels = { zone = "europe", key = env("A") }`, []string{"va1ue-of-A"}},
		"a region":       {`region = env("REGION")`, nil},
		"and a secret":   {`labels = { zone = env("REGION"), key = env("A") }`, []string{"va1ue-of-A"}},
		"by its name":    {`region = env("THE_TOKEN")`, []string{"letmein"}},
		"a switch":       {`region = env("UNSET", "true")`, nil},
		"a name in it":   {`labels = { (env("A")) = "europe" }`, []string{"va1ue-of-A"}},
		"a list":         {`zones = [env("B"), "europe", env("A"), env("B")]`, []string{"va1ue-of-A", "va1ue-of-B"}},
		"a choice":       {`region = env("A") == "x" ? "one-way" : "other-way"`, []string{"other-way"}},
		"what is hidden": {"region = env(\"UNSET\", \"a d3fault\")", []string{"a d3fault"}},
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
