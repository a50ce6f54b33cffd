package reference_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/reference"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var cloud = []reference.Provider{{Label: "cloud_eu", Plugin: "cloud", Schema: sdk.Schema{
	{Name: "api_key", Type: sdk.TypeString, Required: true, Secret: true, Default: nil, Label: "API key", Description: "The key of `your` account.", Placeholder: "ck_..."},
	{Name: "secret_with_default", Type: sdk.TypeString, Secret: true, Default: "hunter2"},
	{Name: "region", Type: sdk.TypeString, Default: "us", Options: []string{"us", "eu"}},
	{Name: "host", Type: sdk.TypeString, Pattern: `a|b`, Max: sdk.Bound(20)},
	{Name: "size", Type: sdk.TypeInteger, Default: int64(4), Min: sdk.Bound(0), Max: sdk.Bound(100)},
	{Name: "cpus", Type: sdk.TypeNumber, Min: sdk.Bound(0.1)},
	{Name: "verbose", Type: sdk.TypeBoolean, Default: false},
	{Name: "idle", Type: sdk.TypeDuration, Default: 90 * time.Second, Max: sdk.Bound(86400)},
	{Name: "mounts", Type: sdk.TypeList, Min: sdk.Bound(1), Default: []string{"/a"}},
	{Name: "labels", Type: sdk.TypeMap},
	{Name: "auth", Type: sdk.TypeBlock, Required: true, Label: "Login", Fields: sdk.Schema{{Name: "password", Type: sdk.TypeString, Required: true, Secret: true}}},
	{Name: "rules", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(3), Fields: sdk.Schema{{Name: "rate", Type: sdk.TypeNumber, Default: 1.5}}},
}}}

func TestThePageOfTheConfigurationListsEverything(t *testing.T) {
	golden.Assert(t, reference.Markdown(config.Blocks(), nil), "../../../docs/configuration.md")
}

func TestThePageWithAProvider(t *testing.T) {
	page := reference.Markdown(config.Blocks(), cloud)
	assert.Assert(t, is.Contains(page, "## provider \"cloud_eu\"\n\nThe settings of the plugin `cloud`.\n"))
	assert.Assert(t, is.Contains(page, "| `idle` | duration | `1m30s` | at most 86400 s |"))
}

func TestTheJSONSchema(t *testing.T) {
	own, err := reference.JSONSchema(config.Blocks(), nil)
	assert.NilError(t, err)
	golden.Assert(t, string(own)+"\n", "own.json")
	with, err := reference.JSONSchema([]config.BlockSchema{{Type: "provider", Label: "^[a-z]+$", Description: "One plugin."}}, cloud)
	assert.NilError(t, err)
	golden.Assert(t, string(with)+"\n", "provider.json")
	assert.Assert(t, !strings.Contains(string(with), "hunter2"), "a secret's default is a secret")
	assert.Assert(t, json.Valid(with))
}

// What resolves is what the JSON Schema takes.
func TestTheJSONSchemaCountsBlocks(t *testing.T) {
	inner := sdk.Schema{{Name: "a", Type: sdk.TypeString}}
	text, err := reference.JSONSchema([]config.BlockSchema{{Type: "provider", Label: "^[a-z]+$"}}, []reference.Provider{{Label: "x", Schema: sdk.Schema{
		{Name: "any", Type: sdk.TypeBlock, Repeated: true, Fields: inner},
		{Name: "few", Type: sdk.TypeBlock, Repeated: true, Min: sdk.Bound(2), Max: sdk.Bound(3), Fields: inner},
		{Name: "must", Type: sdk.TypeBlock, Repeated: true, Required: true, Fields: inner},
	}}})
	assert.NilError(t, err)
	var schema struct {
		Properties struct {
			Provider struct {
				Properties map[string]struct {
					Required   []string
					Properties map[string]struct{ MinItems, MaxItems *int }
				}
			}
		}
	}
	assert.NilError(t, json.Unmarshal(text, &schema))
	one := schema.Properties.Provider.Properties["x"]
	assert.DeepEqual(t, one.Required, []string{"few", "must"})
	assert.Assert(t, one.Properties["any"].MinItems == nil && one.Properties["any"].MaxItems == nil)
	assert.Equal(t, *one.Properties["few"].MinItems, 2)
	assert.Equal(t, *one.Properties["few"].MaxItems, 3)
	assert.Equal(t, *one.Properties["must"].MinItems, 1)
}

// The list of blocks and what the parser takes are two things; they name the same.
func TestEveryBlockThatTheParserTakesIsDescribed(t *testing.T) {
	_, diags := config.Parse("x.hcl", []byte("zzzzzzzzzz {}\n"))
	known := regexp.MustCompile(`Known: (.*)\.$`).FindStringSubmatch(diags[0].Detail)
	assert.Assert(t, known != nil, "%v", diags)
	var described []string
	for _, block := range config.Blocks() {
		if block.Type != "" {
			described = append(described, block.Type)
		}
	}
	slices.Sort(described)
	assert.Equal(t, strings.Join(described, ", "), known[1])
}
