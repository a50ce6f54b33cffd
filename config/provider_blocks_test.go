package config_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const withBlocks = `auth {
    user     = "${env("API_KEY")}"
    password = "literal-hunter2-literal"
  }
  rules {
    ports = [80]
  }
  rules {
    limit { rate = 3 }
  }`

func TestAPluginsProblemStandsAtTheSettingInTheBlock(t *testing.T) {
	provider := providerWith(t, withBlocks)
	for path, want := range map[string]struct {
		line             int
		setting, excerpt string
	}{
		"auth":                   {2, "auth", "auth {"},
		"auth.user":              {3, "auth.user", "    user     = (hidden)"},
		"auth.password":          {4, "auth.password", "    password = (hidden)"},
		"auth.listen":            {2, "auth.listen", "auth {"},
		"rules[0].ports":         {7, "rules[0].ports", "    ports = [80]"},
		"rules[1].limit.rate":    {10, "rules[1].limit.rate", "    limit { rate = 3 }"},
		"rules[1].limit.none":    {10, "rules[1].limit", ""},
		"rules[7].ports":         {6, "rules", "  rules {"},
		"rules[99999999999].x":   {6, "rules", "  rules {"},
		"auth..":                 {2, "auth", "auth {"},
		"labels.some.thing[5].x": {1, "labels", `provider "x" {`},
	} {
		t.Run(path, func(t *testing.T) {
			diags := provider.Problems([]sdk.FieldError{{Field: path, Message: "is literal-hunter2-literal"}}, fullSchema())
			assert.Equal(t, len(diags), 1)
			assert.Equal(t, diags[0].Start.Line, want.line)
			assert.Equal(t, diags[0].Setting, want.setting)
			if want.excerpt != "" {
				assert.Equal(t, diags[0].Excerpt.Text, want.excerpt)
			}
			assert.Assert(t, !strings.Contains(diags.Error(), secret))
			placed := provider.Diagnose(sdk.FieldErrorf(sdk.CodeInvalidConfig, path, "is wrong"), fullSchema())
			assert.Equal(t, placed[0].Start.Line, want.line)
		})
	}
}

func TestOriginsAndSecretsWithinBlocks(t *testing.T) {
	provider := providerWith(t, withBlocks)
	assert.DeepEqual(t, provider.Origin("auth"), config.Origin{Kind: config.OriginLiteral, Sensitive: true})
	assert.DeepEqual(t, provider.Origin("auth.user"), config.Origin{Kind: config.OriginEnv, Name: "API_KEY", Sensitive: true})
	assert.DeepEqual(t, provider.Origin("auth.password"), config.Origin{Kind: config.OriginLiteral})
	assert.DeepEqual(t, provider.Origin("rules[1].limit.rate"), config.Origin{Kind: config.OriginLiteral})
	for _, path := range []string{"rules[0].limit.rate", "rules[5].ports", "auth.none", "auth.user.x", "[0]", ""} {
		assert.DeepEqual(t, provider.Origin(path), config.Origin{Kind: config.OriginDefault})
	}
	assert.DeepEqual(t, provider.Secrets(), []string{secret + " from the environment"})
	readable := provider.Readable(fullSchema())
	assert.DeepEqual(t, readable.Block("auth")["password"], "literal-hunter2-literal")
	assert.DeepEqual(t, readable.Blocks("rules")[1].Block("limit")["rate"], 3.0)
}

func TestBlocksThatDifferMakeAnotherProvider(t *testing.T) {
	same := func(body string) bool { return providerWith(t, withBlocks).Equal(providerWith(t, body)) }
	assert.Assert(t, same("# Moved.\n  "+withBlocks))
	assert.Assert(t, !same(strings.Replace(withBlocks, "80", "81", 1)))
	assert.Assert(t, !same(strings.Replace(withBlocks, "${env(\"API_KEY\")}", secret+" from the environment", 1)))
	assert.Assert(t, !same(withBlocks+"\n  rules {}"))
}

func TestTooManyBlocksAreRefused(t *testing.T) {
	_, diags := config.Parse("x.hcl", []byte("provider \"x\" {\n"+strings.Repeat("  rules {}\n", 1001)+"}\n"))
	assert.Assert(t, diags.HasErrors())
	assert.Assert(t, strings.Contains(diags.Error(), "at most 1000 blocks"), diags.Error())
}

func TestBlocksAreCountedWhereTheyAreMissing(t *testing.T) {
	schema := sdk.Schema{
		{Name: "zones", Type: sdk.TypeBlock, Repeated: true, Min: sdk.Bound(2), Max: sdk.Bound(3), Description: "Where.", Fields: sdk.Schema{
			{Name: "name", Type: sdk.TypeString},
			{Name: "hosts", Type: sdk.TypeBlock, Repeated: true, Min: sdk.Bound(1), Fields: sdk.Schema{{Name: "a", Type: sdk.TypeString}}},
		}},
	}
	const zone = "zones {\n    hosts {}\n  }\n  "
	for body, want := range map[string]struct {
		line             int
		setting, summary string
	}{
		"":                                {1, "zones", "Missing block"},
		zone:                              {2, "zones", "Invalid number of blocks"},
		strings.Repeat(zone, 4):           {2, "zones", "Invalid number of blocks"},
		zone + "zones {\n  name=\"a\"\n}": {5, "zones[1].hosts", "Missing block"},
	} {
		_, diags := providerWith(t, body).Settings(schema)
		assert.Equal(t, len(diags), 1, "%s: %v", body, diags)
		assert.Equal(t, diags[0].Start.Line, want.line)
		assert.Equal(t, diags[0].Setting, want.setting)
		assert.Equal(t, diags[0].Summary, want.summary)
		assert.Assert(t, strings.Contains(diags[0].Detail, "must stand"), diags[0].Detail)
	}
	for _, n := range []int{2, 3} {
		_, diags := providerWith(t, strings.Repeat(zone, n)).Settings(schema)
		assert.Equal(t, len(diags), 0, "%v", diags)
	}
}
