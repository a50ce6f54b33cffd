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
