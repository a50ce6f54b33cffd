package providertest

import (
	"encoding/json"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestSettingsInBlocksArePlacesToPutBadValues(t *testing.T) {
	secret := sdk.Field{Name: "key", Type: sdk.TypeString, Secret: true}
	schema := sdk.Schema{
		{Name: "one", Type: sdk.TypeBlock, Fields: sdk.Schema{secret, {Name: "inner", Type: sdk.TypeBlock, Fields: sdk.Schema{secret}}}},
		{Name: "many", Type: sdk.TypeBlock, Repeated: true, Fields: sdk.Schema{secret}},
		{Name: "absent", Type: sdk.TypeBlock, Fields: sdk.Schema{secret}},
	}
	given := map[string]any{
		"one":  map[string]any{"key": "first", "inner": map[string]any{"key": "second"}},
		"many": []any{map[string]any{"key": "third"}, map[string]any{"key": "fourth"}},
	}
	settings, problems := schema.Resolve(given)
	assert.Equal(t, len(problems), 0)
	found := map[string]sdk.Settings{}
	for _, at := range placesIn(schema, settings) {
		found[at.path] = at.put("bad")
	}
	assert.Equal(t, len(found), 7)
	assert.Equal(t, found["absent"]["absent"], "bad")
	assert.DeepEqual(t, found["one.inner.key"].Block("one"), sdk.Settings{"key": "first", "inner": sdk.Settings{"key": "bad"}})
	assert.DeepEqual(t, found["many[0].key"].Blocks("many"), []sdk.Settings{{"key": "bad"}, {"key": "fourth"}})
	// What was put in one place stands in no other.
	assert.Equal(t, settings.Block("one").Block("inner")["key"], "second")
	assert.Equal(t, settings.Blocks("many")[0]["key"], "third")

	for _, value := range []map[string]any{given, settings} {
		assert.DeepEqual(t, secretsOf(schema, value), []string{"first", "second", "third", "fourth"})
	}
}

func TestBlocksAreCounted(t *testing.T) {
	key := sdk.Field{Name: "key", Type: sdk.TypeString, Required: true}
	schema := sdk.Schema{
		{Name: "some", Type: sdk.TypeBlock, Repeated: true, Min: sdk.Bound(2), Max: sdk.Bound(3), Fields: sdk.Schema{key}},
		{Name: "none", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(1), Fields: sdk.Schema{key}},
		{Name: "empty", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(1), Fields: sdk.Schema{{Name: "a", Type: sdk.TypeString}}},
	}
	settings, problems := schema.Resolve(map[string]any{"some": []any{map[string]any{"key": "a"}, map[string]any{"key": "b"}}})
	assert.Equal(t, len(problems), 0)
	found := map[string][]int{}
	for _, at := range placesIn(schema, settings) {
		for _, bad := range outOfBounds(at.field) {
			value, ok := at.fill(bad.value)
			if !ok {
				continue
			}
			changed := at.put(value)
			found[at.path] = append(found[at.path], len(changed.Blocks(at.path)))
			_, problems := schema.Resolve(changed)
			assert.Equal(t, len(problems), 1, "only the number is wrong: %v", problems)
			assert.Equal(t, problems[0].Field, at.path)
		}
	}
	assert.DeepEqual(t, found, map[string][]int{"some": {1, 4}, "empty": {2}})
}

func TestNumbersOfManyDigitsAreSecretsToo(t *testing.T) {
	schema := sdk.Schema{
		{Name: "pin", Type: sdk.TypeInteger, Secret: true},
		{Name: "pins", Type: sdk.TypeList, Secret: true, Items: &sdk.Field{Type: sdk.TypeInteger}},
	}
	for _, pin := range []any{445566, int64(445566), 445566.0, json.Number("445566")} {
		secrets := secretsOf(schema, map[string]any{"pin": pin, "pins": []int64{80, 778899}})
		assert.Assert(t, slices.Contains(secrets, "445566") && slices.Contains(secrets, "778899") && !slices.Contains(secrets, "80"), "%v", secrets)
	}
}
