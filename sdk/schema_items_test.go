package sdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func ports() sdk.Field {
	return sdk.Field{Name: "ports", Type: sdk.TypeList, Max: sdk.Bound(3), Items: &sdk.Field{Type: sdk.TypeInteger, Min: sdk.Bound(1), Max: sdk.Bound(65535)}}
}

func zones() sdk.Field {
	return sdk.Field{Name: "zones", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeString, Options: []string{"a", "b"}}}
}

func shares() sdk.Field {
	return sdk.Field{Name: "shares", Type: sdk.TypeList, Default: []float64{0.5, 1}, Items: &sdk.Field{Type: sdk.TypeNumber}}
}

// A list of ports, one of words to choose from, and one of numbers with a default.
func ExampleField_items() {
	schema := sdk.Schema{
		{Name: "ports", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeInteger, Min: sdk.Bound(1), Max: sdk.Bound(65535)}},
		{Name: "zones", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeString, Options: []string{"a", "b"}}},
		{Name: "shares", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeNumber}, Default: []float64{0.5, 1}},
	}
	settings, problems := schema.Resolve(map[string]any{"ports": []any{80, 443}, "zones": []any{"a", "c"}})
	var own struct {
		Ports  []int64   `config:"ports"`
		Shares []float64 `config:"shares"`
	}
	fmt.Println(settings.Decode(&own), own.Ports, own.Shares)
	fmt.Println(problems)
	// Output:
	// <nil> [80 443] [0.5 1]
	// [zones: has an item, number 2, that must be one of "a", "b"]
}

func TestItemsOfListsAreWhatTheSchemaSays(t *testing.T) {
	assert.NilError(t, sdk.Schema{ports(), zones(), shares()}.Validate())
	for name, test := range map[string]struct {
		field sdk.Field
		value any
		want  any    // nil for a refusal
		says  string // of the refusal
	}{
		"whole numbers":           {ports(), []any{80, json.Number("443"), 1.0}, []int64{80, 443, 1}, ""},
		"none":                    {ports(), []any{}, []int64{}, ""},
		"a fraction":              {ports(), []any{80, 1.5}, nil, "must be a list of whole numbers; item 2 must be a whole number"},
		"a text":                  {ports(), []any{"80"}, nil, "item 1 must be a whole number"},
		"an item out of bounds":   {ports(), []any{80, 65536}, nil, "has an item, number 2, that must be from 1 to 65535"},
		"too many":                {ports(), []any{1, 2, 3, 4}, nil, "must have at most 3 items"},
		"a number":                {ports(), 80, nil, "must be a list of whole numbers"},
		"words to choose from":    {zones(), []string{"b", "a"}, []string{"b", "a"}, ""},
		"another word":            {zones(), []any{"c"}, nil, `must be one of "a", "b"`},
		"numbers":                 {shares(), []any{1, 0.25}, []float64{1, 0.25}, ""},
		"the default":             {shares(), nil, []float64{0.5, 1}, ""},
		"a number that is none":   {shares(), []any{"x"}, nil, "must be a list of numbers; item 1 must be a number"},
		"what has items of items": {shares(), []any{[]any{1}}, nil, "item 1 must be a number"},
	} {
		t.Run(name, func(t *testing.T) {
			settings, problems := sdk.Schema{test.field}.Resolve(map[string]any{test.field.Name: test.value})
			if test.want == nil {
				assert.Equal(t, len(problems), 1)
				assert.ErrorContains(t, problems[0], test.says)
				return
			}
			assert.Equal(t, len(problems), 0, "%v", problems)
			assert.DeepEqual(t, settings[test.field.Name], test.want)
		})
	}
}

func TestItemsThatCannotBe(t *testing.T) {
	number := sdk.Field{Type: sdk.TypeNumber}
	for name, test := range map[string]struct {
		field sdk.Field
		says  string
	}{
		"of a text":           {sdk.Field{Type: sdk.TypeString, Items: &number}, "items are for lists"},
		"that are maps":       {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeMap}}, "not possible"},
		"that are lists":      {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeList, Items: &number}}, "not possible"},
		"without a type":      {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{}}, "not possible"},
		"with a name":         {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeString, Name: "x"}}, "stands at the list"},
		"that are secret":     {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeString, Secret: true}}, "stands at the list"},
		"with items":          {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeString, Items: &number}}, "stands at the list"},
		"with a bad pattern":  {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeString, Pattern: "("}}, "does not compile"},
		"with bad bounds":     {sdk.Field{Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeInteger, Min: sdk.Bound(2), Max: sdk.Bound(1)}}, "above max"},
		"that are no default": {sdk.Field{Type: sdk.TypeList, Default: []string{"x"}, Items: &number}, "default must be a list of numbers"},
		"beside options":      {sdk.Field{Type: sdk.TypeList, Options: []string{"x"}}, "stand in items"},
	} {
		t.Run(name, func(t *testing.T) {
			test.field.Name = "f"
			assert.ErrorContains(t, sdk.Schema{test.field}.Validate(), test.says)
		})
	}
}

// listed is a provider with lists.
type listed struct{ choosy }

func (*listed) Describe() sdk.Description {
	return sdk.Description{Name: "listed", Schema: sdk.Schema{ports(), zones(), shares()}}
}

func (*listed) Validate(_ context.Context, settings sdk.Settings) []sdk.FieldError {
	return []sdk.FieldError{{Field: "ports", Message: fmt.Sprintf("%v %T %v", settings["ports"], settings["shares"], settings["zones"])}}
}

func TestItemsSurviveTheWire(t *testing.T) {
	plugin, err := providertest.InProcess(func(hclog.Logger) sdk.Provider { return &listed{} })(t.Context())
	assert.NilError(t, err)
	defer func() { assert.Check(t, plugin.Stop(t.Context())) }()
	client, err := wire.NewClient(t.Context(), plugin.Conn)
	assert.NilError(t, err)
	schema := client.Describe().Schema
	assert.DeepEqual(t, schema[0], ports())
	assert.DeepEqual(t, schema[1].Items.Options, []string{"a", "b"})
	settings, problems := schema.Resolve(map[string]any{"ports": []any{80, 443}, "zones": []any{"a"}})
	assert.Equal(t, len(problems), 0)
	problems, err = client.Validate(t.Context(), settings)
	assert.NilError(t, err)
	assert.Equal(t, problems[0].Message, "[80 443] []float64 [a]")
}
