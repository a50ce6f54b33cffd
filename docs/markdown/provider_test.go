package markdown_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func cloud() sdk.Description {
	return sdk.Description{
		Name: "cloud", Summary: "Boxes in | the\ncloud.", Languages: []sdk.Language{sdk.Python, sdk.Bash},
		Templates:    []sdk.Template{{Name: "small", Description: "a|b", Languages: []sdk.Language{sdk.Python}}},
		Capabilities: []sdk.Capability{sdk.CapabilityFiles, sdk.CapabilityPorts},
		Schema: sdk.Schema{
			{Name: "api_key", Type: sdk.TypeString, Required: true, Secret: true},
			{Name: "url", Type: sdk.TypeString, Required: true, Placeholder: `https://${x}/"y"\`},
			{Name: "region", Type: sdk.TypeString, Required: true, Options: []string{"eu", "us"}},
			{Name: "count", Type: sdk.TypeInteger, Required: true, Min: sdk.Bound(3)},
			{Name: "wait", Type: sdk.TypeDuration, Required: true},
			{Name: "fast", Type: sdk.TypeBoolean, Required: true},
			{Name: "hosts", Type: sdk.TypeList, Required: true},
			{Name: "labels", Type: sdk.TypeMap, Required: true},
			{Name: "ports", Type: sdk.TypeList, Required: true, Items: &sdk.Field{Type: sdk.TypeInteger, Min: sdk.Bound(1)}},
			{Name: "zones", Type: sdk.TypeList, Required: true, Items: &sdk.Field{Type: sdk.TypeString, Options: []string{"eu", "us"}}},
			{Name: "from_a_plugin", Type: sdk.TypeList, Default: []any{"a", "b"}},
			{Name: "optional", Type: sdk.TypeString},
			{Name: "auth", Type: sdk.TypeBlock, Required: true, Fields: sdk.Schema{
				{Name: "password", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1)},
				{Name: "inner", Type: sdk.TypeBlock, Repeated: true, Min: sdk.Bound(2), Fields: sdk.Schema{{Name: "rate", Type: sdk.TypeNumber, Required: true}}},
			}},
			{Name: "rules", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(3), Fields: sdk.Schema{{Name: "rate", Type: sdk.TypeNumber}}},
		},
	}
}

func TestAPageAboutAProviderHasAllThatItSays(t *testing.T) {
	text := markdown.Provider(cloud())
	for _, want := range []string{
		"# cloud\n\nBoxes in \\| the cloud.\n", "| `small` | python | a\\|b |", "Languages: python, bash.", "`files`, `ports`",
		"| `auth.inner.rate` | number | required |", "| `rules` | block, repeated |  | at most 3 blocks |", "  auth {\n    password = ", "    inner {\n      rate = 1\n    }\n    inner {\n      rate = 1\n    }\n",
		"| `from_a_plugin` | list | `a`, `b` |", `env("CLOUD_API_KEY")`, `"https://$${x}/\"y\"\\"`,
	} {
		assert.Check(t, is.Contains(text, want))
	}
	assert.Check(t, !strings.Contains(text, "optional  "), "the block has what must be there")
	again, err := markdown.UpdateProvider(text, cloud())
	assert.NilError(t, err)
	assert.Equal(t, again, text)
	assert.Check(t, is.Contains(markdown.Provider(sdk.Description{Name: "x"}), "None beyond executing code."))
}

// What somebody pastes must be a configuration.
func TestTheBlockOfThePageIsRight(t *testing.T) {
	block := markdown.Parse(markdown.Provider(cloud())).Blocks[0]
	cfg, diags := config.Parse("sandbox.hcl", []byte(block.Configuration("plugins")), config.WithEnv(func(name string) (string, bool) { return "key", name == "CLOUD_API_KEY" }))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	settings, diags := cfg.Providers[0].Settings(cloud().Schema)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, settings["url"], `https://${x}/"y"\`)
	assert.Equal(t, settings["api_key"], "key")
	assert.Equal(t, settings.Block("auth").Blocks("inner")[0]["rate"], 1.0)
}

func TestOnlyTheSectionsThatAPageHasAreUpdated(t *testing.T) {
	text, err := markdown.UpdateProvider("mine\n<!-- generated: capabilities -->\nold\n<!-- end -->\nmine too\n", cloud())
	assert.NilError(t, err)
	assert.Equal(t, text, "mine\n<!-- generated: capabilities -->\n\n`files`, `ports`\n\n<!-- end -->\nmine too\n")
	_, err = markdown.UpdateProvider("mine\n", cloud())
	assert.ErrorContains(t, err, "no section")
	_, err = markdown.UpdateProvider("<!-- generated: settings -->\nwithout an end", cloud())
	assert.ErrorContains(t, err, "no section")
}
