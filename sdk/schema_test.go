package sdk_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestSchemasThatTheBrokerRefuses(t *testing.T) {
	many := make(sdk.Schema, 201)
	for i := range many {
		many[i] = sdk.Field{Name: fmt.Sprintf("f%d", i), Type: sdk.TypeString}
	}
	for name, test := range map[string]struct {
		schema sdk.Schema
		want   string
	}{
		"too many fields":               {many, "at most 200"},
		"no name":                       {sdk.Schema{{Type: sdk.TypeString}}, "is not of the form"},
		"a name in capitals":            {one("Name", sdk.TypeString), "is not of the form"},
		"a name with a newline":         {one("a\n", sdk.TypeString), "is not of the form"},
		"a name of 64 characters":       {one(strings.Repeat("a", 64), sdk.TypeString), "is not of the form"},
		"a name twice":                  {append(one("a", sdk.TypeString), one("a", sdk.TypeList)...), "declared twice"},
		"the broker's own names":        {one("plugin", sdk.TypeString), "reserved"},
		"an unknown type":               {one("a", "object"), "is not one of"},
		"no type":                       {one("a", ""), "is not one of"},
		"options of a number":           {sdk.Schema{{Name: "a", Type: sdk.TypeInteger, Options: []string{"1"}}}, "options are for strings"},
		"too many options":              {sdk.Schema{{Name: "a", Type: sdk.TypeString, Options: make([]string, 1001)}}, "more than 1000 options"},
		"a text that is too long":       {sdk.Schema{{Name: "a", Type: sdk.TypeString, Description: strings.Repeat("x", 4001)}}, "longer than 4000 bytes"},
		"a text that is not UTF-8":      {sdk.Schema{{Name: "a", Type: sdk.TypeString, Label: "\xff"}}, "not UTF-8"},
		"a pattern of a number":         {sdk.Schema{{Name: "a", Type: sdk.TypeNumber, Pattern: "1"}}, "patterns are for strings"},
		"a pattern that is no pattern":  {sdk.Schema{{Name: "a", Type: sdk.TypeString, Pattern: "("}}, "does not compile"},
		"a pattern that closes a group": {sdk.Schema{{Name: "a", Type: sdk.TypeString, Pattern: "a)|(?:b"}}, "does not compile"},
		"a pattern that quotes the end": {sdk.Schema{{Name: "a", Type: sdk.TypeString, Pattern: `\Qa`}}, "does not compile"},
		"a pattern of many repetitions": {sdk.Schema{{Name: "a", Type: sdk.TypeString, Pattern: "(" + strings.Repeat("a", 980) + "){1000}"}}, "too large once its repetitions are written out"},
		"a pattern that is too long":    {sdk.Schema{{Name: "a", Type: sdk.TypeString, Pattern: strings.Repeat("a", 1001)}}, "longer than 1000 bytes"},
		"a bound of a boolean":          {sdk.Schema{{Name: "a", Type: sdk.TypeBoolean, Min: sdk.Bound(0)}}, "no min or max"},
		"a minimum above the maximum":   {sdk.Schema{{Name: "a", Type: sdk.TypeInteger, Min: sdk.Bound(2), Max: sdk.Bound(1)}}, "above max"},
		"a bound that is not a number":  {sdk.Schema{{Name: "a", Type: sdk.TypeInteger, Max: sdk.Bound(math.NaN())}}, "finite"},
		"a bound without end":           {sdk.Schema{{Name: "a", Type: sdk.TypeInteger, Min: sdk.Bound(math.Inf(-1))}}, "finite"},
		"a default of another type":     {sdk.Schema{{Name: "a", Type: sdk.TypeInteger, Default: "1"}}, "default must be a whole number"},
		"a default out of range":        {sdk.Schema{{Name: "a", Type: sdk.TypeInteger, Default: 5, Max: sdk.Bound(4)}}, "default must be at most 4"},
		"a default that is no option":   {sdk.Schema{{Name: "a", Type: sdk.TypeString, Default: "c", Options: []string{"a", "b"}}}, "default must be one of"},
		"a default of what is required": {sdk.Schema{{Name: "a", Type: sdk.TypeInteger, Default: 1, Required: true}}, "no default"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, test.schema.Validate(), test.want)
		})
	}
}

func one(name string, kind sdk.FieldType) sdk.Schema {
	return sdk.Schema{{Name: name, Type: kind}}
}

func TestSchemasThatTheBrokerAccepts(t *testing.T) {
	assert.NilError(t, sdk.Schema(nil).Validate())
	assert.NilError(t, everyType().Validate())
}

func everyType() sdk.Schema {
	return sdk.Schema{
		{Name: "text", Type: sdk.TypeString, Default: "a", Pattern: "a|bc", Max: sdk.Bound(2)},
		{Name: "choice", Type: sdk.TypeString, Options: []string{"a", "b"}},
		{Name: "whole", Type: sdk.TypeInteger, Default: 3, Min: sdk.Bound(-5), Max: sdk.Bound(1 << 53)},
		{Name: "number", Type: sdk.TypeNumber, Default: 0.5},
		{Name: "yes", Type: sdk.TypeBoolean, Default: true},
		{Name: "wait", Type: sdk.TypeDuration, Default: "1m", Min: sdk.Bound(0)},
		{Name: "items", Type: sdk.TypeList, Default: []string{"x"}, Min: sdk.Bound(1)},
		{Name: "map", Type: sdk.TypeMap, Max: sdk.Bound(2)},
		{Name: "secret", Type: sdk.TypeMap, Secret: true},
	}
}

func TestDefaultsFillWhatIsNotGiven(t *testing.T) {
	settings, problems := everyType().Resolve(map[string]any{"yes": nil})
	assert.Equal(t, len(problems), 0)
	assert.DeepEqual(t, settings, sdk.Settings{
		"text": "a", "whole": int64(3), "number": 0.5, "yes": true, "wait": time.Minute, "items": []string{"x"},
	})
	settings["items"].([]string)[0] = "changed"
	again, _ := everyType().Resolve(nil)
	assert.DeepEqual(t, again["items"], []string{"x"})
}

func TestValuesThatObeyTheSchema(t *testing.T) {
	for _, test := range []struct {
		name        string
		given, want any
	}{
		{"text", "bc", "bc"},
		{"choice", "b", "b"},
		{"whole", 7, int64(7)},
		{"whole", 7.0, int64(7)},
		{"whole", json.Number("9007199254740992"), int64(1 << 53)},
		{"whole", json.Number("1e3"), int64(1000)},
		{"number", 7, 7.0},
		{"number", json.Number("0.25"), 0.25},
		{"yes", false, false},
		{"wait", "90s", 90 * time.Second},
		{"wait", 0.29, 290 * time.Millisecond},
		{"wait", int64(5), 5 * time.Second},
		{"wait", time.Second, time.Second},
		{"items", []any{"a"}, []string{"a"}},
		{"items", []string{"a"}, []string{"a"}},
		{"map", map[string]any{"a": "b"}, map[string]string{"a": "b"}},
		{"map", map[string]string{}, map[string]string{}},
	} {
		t.Run(fmt.Sprintf("%s %v", test.name, test.given), func(t *testing.T) {
			settings, problems := everyType().Resolve(map[string]any{test.name: test.given})
			assert.Equal(t, len(problems), 0, "%v", problems)
			assert.DeepEqual(t, settings[test.name], test.want)
		})
	}
}

func TestValuesThatBreakTheSchema(t *testing.T) {
	for _, test := range []struct {
		name  string
		given any
		want  string
	}{
		{"text", 5, "must be a string"},
		{"text", "abc", "must match the pattern a|bc"},
		{"text", "xbc", "must match the pattern a|bc"},
		{"text", "a\n", "must match the pattern a|bc"},
		{"choice", "c", `must be one of "a", "b"`},
		{"whole", "7", "must be a whole number"},
		{"whole", 7.5, "must be a whole number"},
		{"whole", true, "must be a whole number"},
		{"whole", math.Inf(1), "must be a whole number"},
		{"whole", math.NaN(), "must be a whole number"},
		{"whole", json.Number("1e400"), "must be a whole number"},
		{"whole", int64(1<<53 + 1), "must be a whole number from -9007199254740992 to 9007199254740992"},
		{"whole", json.Number("9007199254740993"), "must be a whole number from -9007199254740992 to 9007199254740992"},
		{"whole", 1e300, "must be a whole number from -9007199254740992 to 9007199254740992"},
		{"whole", -6, "must be from -5 to 9007199254740992"},
		{"number", "1", "must be a number"},
		{"number", math.Inf(-1), "must be a number"},
		{"yes", "true", "must be true or false"},
		{"wait", "90", `must be a duration such as "30s", "5m" or a number of seconds`},
		{"wait", 1e300, `must be a duration such as "30s", "5m" or a number of seconds`},
		{"wait", "-1s", "must be at least 0 seconds"},
		{"items", "a", "must be a list of strings"},
		{"items", []any{"a", 1}, "must be a list of strings; item 2 is not one"},
		{"items", []any{}, "must have at least 1 item"},
		{"map", []any{}, "must be a map of strings"},
		{"map", map[string]any{"key": 1}, `must be a map of strings; the value of "key" is not one`},
		{"map", map[string]string{"a": "", "b": "", "c": ""}, "must have at most 2 keys"},
		{"secret", map[string]any{"key": 1}, "must be a map of strings; one of its values is not one"},
		{"other", 1, "is not a setting of this provider"},
	} {
		t.Run(fmt.Sprintf("%s %v", test.name, test.given), func(t *testing.T) {
			settings, problems := everyType().Resolve(map[string]any{test.name: test.given})
			assert.DeepEqual(t, problems, []sdk.FieldError{{Field: test.name, Message: test.want}})
			_, set := settings[test.name]
			assert.Assert(t, !set)
		})
	}
}

func TestEverythingWrongIsReportedInTheOrderOfTheSchema(t *testing.T) {
	schema := sdk.Schema{
		{Name: "b", Type: sdk.TypeString, Required: true},
		{Name: "a", Type: sdk.TypeInteger},
	}
	_, problems := schema.Resolve(map[string]any{"a": "x", "z": 1, "y": 2})
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
	}
	assert.DeepEqual(t, fields, []string{"b", "a", "y", "z"})
	assert.Error(t, problems[0], "b: is required")
}

// A message names the rule, never the value.
func TestNoMessageRepeatsASecret(t *testing.T) {
	const secret = "hunter2"
	for _, kind := range sdk.FieldTypes() {
		if kind == sdk.TypeBlock {
			continue // is no secret itself
		}
		field := sdk.Field{Name: "f", Type: kind, Secret: true, Min: sdk.Bound(100), Max: sdk.Bound(200)}
		if kind == sdk.TypeString {
			field.Pattern, field.Options = "[0-9]*", []string{"1"}
		}
		values := []any{
			secret,
			[]any{secret, 5},
			[]any{secret},
			map[string]any{secret: 5},
			map[string]any{secret: secret},
			[]any{[]any{secret}},
			json.Number(secret), time.Duration(7),
		}
		for _, value := range values {
			_, problems := sdk.Schema{field}.Resolve(map[string]any{"f": value})
			assert.Assert(t, len(problems) == 1 || kind == sdk.TypeBoolean, "%s %v", kind, value)
			for _, p := range problems {
				assert.Assert(t, !strings.Contains(p.Error(), secret), p.Error())
			}
		}
	}
}

func TestSettingsSurviveTheWire(t *testing.T) {
	given := map[string]any{
		"text": "bc", "whole": int64(-5), "number": 1e-9, "yes": false, "wait": "1h0m0.123456789s",
		"items": []any{"a", "b"}, "map": map[string]any{"k": "v"},
	}
	settings, problems := everyType().Resolve(given)
	assert.Equal(t, len(problems), 0)
	wire, err := wire.EncodeSettings(settings)
	assert.NilError(t, err)
	back, problems := everyType().Resolve(wire.AsMap())
	assert.Equal(t, len(problems), 0)
	assert.DeepEqual(t, back, settings)
}

func TestSettingsDecodeIntoAStruct(t *testing.T) {
	var into struct {
		Text  string        `config:"text"`
		Wait  time.Duration `config:"wait"`
		Whole int           `config:"whole"`
		Items []string      `config:"items"`
	}
	into.Whole = 9
	assert.NilError(t, sdk.Settings{"text": "a", "wait": time.Second, "items": []string{"x"}}.Decode(&into))
	assert.Equal(t, into.Wait, time.Second)
	assert.Equal(t, into.Whole, 9)
	err := sdk.Settings{"txet": "a"}.Decode(&into)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
	assert.ErrorContains(t, err, "txet")
}

func FuzzSchema(f *testing.F) {
	f.Add("a", "string", "a|b", "a", 0.0, 1.0, `"a"`)
	f.Add("a", "duration", "", "", math.NaN(), 1.0, `1e30`)
	f.Add("a", "string", `\Q`, "", 0.0, 1.0, `"\\"`)
	f.Fuzz(func(t *testing.T, name, kind, pattern, option string, low, high float64, value string) {
		schema := sdk.Schema{{Name: name, Type: sdk.FieldType(kind), Pattern: pattern, Min: &low, Max: &high}}
		if option != "" {
			schema[0].Options = []string{option}
		}
		if schema.Validate() != nil {
			return
		}
		var given any
		if json.Unmarshal([]byte(value), &given) != nil {
			return
		}
		settings, problems := schema.Resolve(map[string]any{name: given})
		if len(problems) > 0 {
			return
		}
		if _, err := wire.EncodeSettings(settings); err != nil {
			t.Fatalf("accepted %#v, which cannot be sent: %v", settings, err)
		}
	})
}
