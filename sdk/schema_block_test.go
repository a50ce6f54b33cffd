package sdk_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func auth() sdk.Field {
	return sdk.Field{Name: "auth", Type: sdk.TypeBlock, Required: true, Fields: sdk.Schema{
		{Name: "user", Type: sdk.TypeString, Default: "me"},
		{Name: "password", Type: sdk.TypeString, Required: true, Secret: true, Min: sdk.Bound(3)},
		{Name: "wait", Type: sdk.TypeDuration, Default: 5 * time.Second},
	}}
}

func rules() sdk.Field {
	return sdk.Field{Name: "rules", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(2), Fields: sdk.Schema{
		{Name: "ports", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeInteger}},
		{Name: "limit", Type: sdk.TypeBlock, Fields: sdk.Schema{{Name: "rate", Type: sdk.TypeNumber, Max: sdk.Bound(10)}}},
	}}
}

// A block that must be there, and one that may stand several times. In the file:
//
//	auth {
//	  password = env("PASSWORD")
//	}
//	rules { ports = [80] }
//	rules { ports = [443] }
func ExampleField_fields() {
	schema := sdk.Schema{
		{Name: "auth", Type: sdk.TypeBlock, Required: true, Fields: sdk.Schema{
			{Name: "user", Type: sdk.TypeString, Default: "me"},
			{Name: "password", Type: sdk.TypeString, Required: true, Secret: true},
		}},
		{Name: "rules", Type: sdk.TypeBlock, Repeated: true, Fields: sdk.Schema{
			{Name: "ports", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeInteger}},
		}},
	}
	settings, problems := schema.Resolve(map[string]any{
		"auth":  map[string]any{"password": "hunter2"},
		"rules": []any{map[string]any{"ports": []any{80}}, map[string]any{"ports": []any{443}}},
	})
	fmt.Println(problems, settings.Block("auth")["user"], len(settings.Blocks("rules")))
	var own struct {
		Auth struct {
			User     string `config:"user"`
			Password string `config:"password"`
		} `config:"auth"`
		Rules []struct {
			Ports []int64 `config:"ports"`
		} `config:"rules"`
	}
	fmt.Println(settings.Decode(&own), own.Auth.User, own.Rules[1].Ports)
	_, problems = schema.Resolve(map[string]any{"auth": map[string]any{"pasword": "hunter2"}})
	fmt.Println(problems)
	// Output:
	// [] me 2
	// <nil> me [443]
	// [auth.password: is required auth.pasword: is not a setting of this provider]
}

func TestMistakesInBlocksNameTheirPath(t *testing.T) {
	schema := sdk.Schema{auth(), rules()}
	assert.NilError(t, schema.Validate())
	password := map[string]any{"password": "hunter2"}
	for name, test := range map[string]struct {
		given map[string]any
		says  []string
	}{
		"all is well":             {map[string]any{"auth": password}, nil},
		"a block is missing":      {map[string]any{}, []string{"auth: is required"}},
		"no block":                {map[string]any{"auth": "x", "rules": map[string]any{}}, []string{"auth: must be a block", "rules: must be a list of blocks"}},
		"a list for one block":    {map[string]any{"auth": []any{password}}, []string{"auth: must be a block"}},
		"a secret out of bounds":  {map[string]any{"auth": map[string]any{"password": "pw"}}, []string{"auth.password: must have at least 3 characters"}},
		"too many":                {map[string]any{"auth": password, "rules": []any{password, password, password}}, []string{"rules: must stand at most 2 times"}},
		"far too many":            {map[string]any{"auth": password, "rules": make([]any, 1001)}, []string{"rules: must stand at most 1000 times"}},
		"the second of them":      {map[string]any{"auth": password, "rules": []any{map[string]any{}, 5}}, []string{"rules[1]: must be a block"}},
		"a block within a block":  {map[string]any{"auth": password, "rules": []any{map[string]any{"limit": map[string]any{"rate": 11, "x": 1}}}}, []string{"rules[0].limit.rate: must be at most 10", "rules[0].limit.x: is not a setting of this provider"}},
		"a number that is a text": {map[string]any{"auth": password, "rules": []sdk.Settings{{"ports": []any{"80"}}}}, []string{"rules[0].ports: must be a list of whole numbers; item 1 must be a whole number"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := schema.Resolve(test.given)
			var says []string
			for _, problem := range problems {
				says = append(says, problem.Error())
				assert.Check(t, !is.Contains(problem.Error(), "hunter2")().Success())
			}
			assert.DeepEqual(t, says, test.says)
		})
	}
}

// What is not given stands no time, and an empty list is nothing given.
func TestBlocksAreCounted(t *testing.T) {
	fields := sdk.Schema{{Name: "a", Type: sdk.TypeString}}
	several := sdk.Field{Name: "b", Type: sdk.TypeBlock, Repeated: true, Min: sdk.Bound(2), Max: sdk.Bound(3), Fields: fields}
	least := sdk.Field{Name: "b", Type: sdk.TypeBlock, Repeated: true, Min: sdk.Bound(1), Fields: fields}
	required := sdk.Field{Name: "b", Type: sdk.TypeBlock, Repeated: true, Required: true, Fields: fields}
	many := sdk.Field{Name: "b", Type: sdk.TypeBlock, Repeated: true, Fields: fields}
	blocks := func(n int) []sdk.Settings { return make([]sdk.Settings, n) }
	for name, test := range map[string]struct {
		field sdk.Field
		given any
		says  string
	}{
		"none of two to three": {several, nil, "b: must stand from 2 to 3 times"},
		"an empty list":        {several, blocks(0), "b: must stand from 2 to 3 times"},
		"one":                  {several, blocks(1), "b: must stand from 2 to 3 times"},
		"two":                  {several, blocks(2), ""},
		"three":                {several, blocks(3), ""},
		"four":                 {several, blocks(4), "b: must stand from 2 to 3 times"},
		"none of at least one": {least, nil, "b: must stand at least 1 time"},
		"none that is needed":  {required, nil, "b: is required"},
		"an empty list of it":  {required, blocks(0), "b: is required"},
		"none of any":          {many, nil, ""},
		"an empty list of any": {many, blocks(0), ""},
		"in a block": {
			sdk.Field{Name: "b", Type: sdk.TypeBlock, Repeated: true, Fields: sdk.Schema{several}},
			[]any{map[string]any{"b": blocks(2)}, map[string]any{}},
			"b[1].b: must stand from 2 to 3 times",
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NilError(t, sdk.Schema{test.field}.Validate())
			_, problems := sdk.Schema{test.field}.Resolve(map[string]any{"b": test.given})
			says := ""
			for _, problem := range problems {
				says += problem.Error()
			}
			assert.Equal(t, says, test.says)
		})
	}
	for _, bound := range []float64{-1, 1.5, 1001} {
		for _, wrong := range []sdk.Field{{Min: &bound}, {Max: &bound}} {
			wrong.Name, wrong.Type, wrong.Repeated, wrong.Fields = "b", sdk.TypeBlock, true, fields
			assert.ErrorContains(t, sdk.Schema{wrong}.Validate(), "whole numbers from 0 to 1000")
		}
	}
}

func TestBlocksThatCannotBe(t *testing.T) {
	inner := sdk.Schema{{Name: "a", Type: sdk.TypeString}}
	deep := sdk.Field{Name: "b", Type: sdk.TypeBlock, Fields: inner}
	for range 2 {
		deep = sdk.Field{Name: "b", Type: sdk.TypeBlock, Fields: sdk.Schema{deep}}
	}
	assert.NilError(t, sdk.Schema{deep}.Validate())
	long := sdk.Schema{}
	for i := range 100 {
		long = append(long, sdk.Field{Name: fmt.Sprintf("f%d", i), Type: sdk.TypeString})
	}
	endless := make(sdk.Schema, 1)
	endless[0] = sdk.Field{Name: "b", Type: sdk.TypeBlock, Fields: endless}
	for name, test := range map[string]struct {
		fields sdk.Schema
		says   string
	}{
		"without fields":              {sdk.Schema{{Name: "b", Type: sdk.TypeBlock}}, "a block has fields"},
		"fields of a map":             {sdk.Schema{{Name: "b", Type: sdk.TypeMap, Fields: inner}}, "fields and repeated are for blocks"},
		"a repeated text":             {sdk.Schema{{Name: "b", Type: sdk.TypeString, Repeated: true}}, "fields and repeated are for blocks"},
		"that are secret":             {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: inner, Secret: true}}, "mark those of its fields"},
		"with a default":              {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: inner, Default: map[string]any{}}}, "a block has no default"},
		"with bounds for one":         {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: inner, Max: sdk.Bound(1)}}, "blocks that are repeated"},
		"with items":                  {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: inner, Items: &sdk.Field{Type: sdk.TypeString}}}, "items are for lists"},
		"a field declared twice":      {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: append(inner, inner...)}}, "declared twice"},
		"a name of the broker within": {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: sdk.Schema{{Name: "sha256", Type: sdk.TypeString}}}}, "reserved"},
		"four deep":                   {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: sdk.Schema{deep}}}, "more than 3 deep"},
		"endless":                     {endless, "more than 3 deep"},
		"too many fields in all":      {sdk.Schema{{Name: "b", Type: sdk.TypeBlock, Fields: long}, {Name: "c", Type: sdk.TypeBlock, Fields: long}}, "at most 200"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, test.fields.Validate(), test.says)
		})
	}
}

// walled is a provider with blocks.
type walled struct{ choosy }

func (*walled) Describe() sdk.Description {
	return sdk.Description{Name: "walled", Schema: sdk.Schema{auth(), rules()}}
}

func (*walled) Validate(_ context.Context, settings sdk.Settings) []sdk.FieldError {
	var own struct {
		Auth *struct {
			User     string        `config:"user"`
			Password string        `config:"password"`
			Wait     time.Duration `config:"wait"`
		} `config:"auth"`
		Rules []struct {
			Ports []int64 `config:"ports"`
			Limit struct {
				Rate float64 `config:"rate"`
			} `config:"limit"`
		} `config:"rules"`
	}
	if err := settings.Decode(&own); err != nil {
		return []sdk.FieldError{{Message: err.Error()}}
	}
	return []sdk.FieldError{{Field: "rules[0].limit.rate", Message: fmt.Sprintf("%v %v", *own.Auth, own.Rules)}}
}

func TestBlocksSurviveTheWire(t *testing.T) {
	plugin, err := providertest.InProcess(func(hclog.Logger) sdk.Provider { return &walled{} })(t.Context())
	assert.NilError(t, err)
	defer func() { assert.Check(t, plugin.Stop(t.Context())) }()
	client, err := wire.NewClient(t.Context(), plugin.Conn)
	assert.NilError(t, err)
	schema := client.Describe().Schema
	assert.DeepEqual(t, schema[1], rules())
	var paths []string
	for path := range schema.Paths() {
		paths = append(paths, path)
	}
	assert.DeepEqual(t, paths, []string{"auth", "auth.user", "auth.password", "auth.wait", "rules", "rules.ports", "rules.limit", "rules.limit.rate"})
	settings, problems := schema.Resolve(map[string]any{
		"auth": map[string]any{"password": "hunter2"}, "rules": []any{map[string]any{"ports": []any{80}, "limit": map[string]any{"rate": 1.5}}, map[string]any{}},
	})
	assert.Equal(t, len(problems), 0)
	problems, err = client.Validate(t.Context(), settings)
	assert.NilError(t, err)
	assert.DeepEqual(t, problems, []sdk.FieldError{{Field: "rules[0].limit.rate", Message: "{me hunter2 5s} [{[80] {1.5}} {[] {0}}]"}})
}
