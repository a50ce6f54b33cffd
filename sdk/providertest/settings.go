package providertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

// badValue is a value that breaks the declaration of a field, and how.
type badValue struct {
	value any
	why   string
}

// outOfOptions, outOfBounds, offPattern and wrongType make bad values; nil where
// the field forbids nothing of the kind. What is left at ok can be sent over the
// wire and is what a broker with another schema might send.
func outOfOptions(f sdk.Field) []badValue {
	const none = "none-of-the-options"
	switch {
	case len(f.Options) > 0:
		return []badValue{{none, "is not among the options"}}
	case f.Items != nil && len(f.Items.Options) > 0:
		return []badValue{{[]string{none}, "has an item that is not among the options"}}
	default:
		return nil
	}
}

func outOfBounds(f sdk.Field) []badValue {
	var bad []badValue
	add := func(value any, why string) {
		if value != nil {
			bad = append(bad, badValue{value, why})
		}
	}
	if f.Min != nil {
		add(sized(f, *f.Min-1), "is below min")
	}
	if f.Max != nil {
		add(sized(f, *f.Max+1), "is above max")
	}
	if f.Items != nil {
		for _, b := range outOfBounds(*f.Items) {
			add([]any{b.value}, "has an item that "+b.why)
		}
	}
	return bad
}

// sized is a value of a type whose size, as bounds see it, is n; nil if there is
// none or it would be large.
func sized(f sdk.Field, n float64) any {
	const most = 100_000
	t := f.Type
	switch t {
	case sdk.TypeInteger, sdk.TypeNumber, sdk.TypeDuration:
		return n
	case sdk.TypeString, sdk.TypeList, sdk.TypeMap, sdk.TypeBlock:
		if n < 0 || n > most {
			return nil
		}
	default:
		return nil
	}
	switch t {
	case sdk.TypeBlock:
		return blockCount(n)
	case sdk.TypeString:
		text := make([]byte, int(n))
		for i := range text {
			text[i] = 'x'
		}
		return string(text)
	case sdk.TypeList:
		list := make([]any, int(n))
		for i := range list {
			list[i] = itemLike(f)
		}
		return list
	default:
		m := map[string]string{}
		for len(m) < int(n) {
			m[randomWord()] = "x"
		}
		return m
	}
}

// itemLike is an item that a list may have, as far as that is easy to find.
func itemLike(f sdk.Field) any {
	item := sdk.Field{Type: sdk.TypeString}
	if f.Items != nil {
		item = *f.Items
	}
	switch {
	case len(item.Options) > 0:
		return item.Options[0]
	case item.Type == sdk.TypeString:
		return "x"
	case item.Min != nil:
		return *item.Min
	case item.Max != nil:
		return *item.Max
	default:
		return 1.0
	}
}

func offPattern(f sdk.Field) []badValue {
	if f.Pattern == "" {
		return nil
	}
	// Some text matches nearly no pattern; what does match is no bad value.
	for _, text := range []string{"", "\x01", "no such value", "-", "0"} {
		check := sdk.Schema{{Name: f.Name, Type: sdk.TypeString, Pattern: f.Pattern}}
		if _, mistakes := check.Resolve(map[string]any{f.Name: text}); len(mistakes) > 0 {
			return []badValue{{text, "does not match the pattern"}}
		}
	}
	return nil
}

func wrongType(f sdk.Field) []badValue {
	switch f.Type {
	case sdk.TypeList:
		bad := []badValue{{true, "is not of the type"}}
		if f.Items != nil {
			bad = append(bad, badValue{[]any{true}, "has an item that is not of the type"})
		}
		return bad
	case sdk.TypeString, sdk.TypeMap, sdk.TypeBlock:
		return []badValue{{true, "is not of the type"}}
	default:
		return []badValue{{[]string{"x"}, "is not of the type"}}
	}
}

// with returns settings with one of them changed; nil takes it out.
func with(settings sdk.Settings, name string, value any) sdk.Settings {
	changed := maps.Clone(settings)
	if value == nil {
		delete(changed, name)
	} else {
		changed[name] = value
	}
	return changed
}

// secretsOf lists the texts of the secret settings that are long enough to be
// told from other text.
func secretsOf(schema sdk.Schema, given map[string]any) []string {
	const least = 4
	var secrets []string
	add := func(text string) {
		if len(text) >= least {
			secrets = append(secrets, text)
		}
	}
	for _, f := range schema {
		if f.Type == sdk.TypeBlock {
			for _, block := range blocksOf(given[f.Name]) {
				secrets = append(secrets, secretsOf(f.Fields, block)...)
			}
		}
		if !f.Secret {
			continue
		}
		switch v := given[f.Name].(type) {
		case string:
			add(v)
		case int, int64, float64, json.Number, []int64, []float64:
			settings, _ := sdk.Schema{f}.Resolve(map[string]any{f.Name: v})
			secrets = append(secrets, redact.Secrets(sdk.Schema{f}, settings)...)
		case []string:
			for _, text := range v {
				add(text)
			}
		case []any:
			for _, item := range v {
				text, _ := item.(string)
				add(text)
			}
		case map[string]string:
			for _, text := range v {
				add(text)
			}
		case map[string]any:
			for _, item := range v {
				text, _ := item.(string)
				add(text)
			}
		}
	}
	return secrets
}

// blocksOf are the blocks of a field as they were given, one or several.
func blocksOf(value any) []map[string]any {
	switch v := value.(type) {
	case map[string]any:
		return []map[string]any{v}
	case sdk.Settings:
		return []map[string]any{v}
	case []map[string]any:
		return v
	case []sdk.Settings:
		var all []map[string]any
		for _, block := range v {
			all = append(all, block)
		}
		return all
	case []any:
		var all []map[string]any
		for _, item := range v {
			all = append(all, blocksOf(item)...)
		}
		return all
	default:
		return nil
	}
}

// place is a field where some settings can have a value for it: at the top, or in a block
// that they have.
type place struct {
	// path of the field as errors name it.
	path  string
	field sdk.Field
	// put returns the settings with another value in this place; nil takes it out.
	put func(value any) sdk.Settings
	// sample is a block that is right, of a field that is one; nil if none is known.
	sample sdk.Settings
}

// blockCount is a bad value: so many blocks, each of which is right.
type blockCount int

// fill makes the value that is meant. There is none for blocks that nobody knows how to
// fill in.
func (p place) fill(value any) (any, bool) {
	n, ok := value.(blockCount)
	if !ok {
		return value, true
	}
	sample := p.sample
	if sample == nil {
		var problems []sdk.FieldError
		if sample, problems = p.field.Fields.Resolve(nil); len(problems) > 0 && n > 0 {
			return nil, false
		}
	}
	blocks := make([]sdk.Settings, n)
	for i := range blocks {
		blocks[i] = sample
	}
	return blocks, true
}

// placesIn finds the fields of a schema, those of blocks too that the settings have; of
// repeated blocks the first.
func placesIn(schema sdk.Schema, settings sdk.Settings) []place {
	var all []place
	for _, f := range schema {
		at := place{path: f.Name, field: f, put: func(value any) sdk.Settings { return with(settings, f.Name, value) }}
		if blocks := settings.Blocks(f.Name); len(blocks) > 0 {
			at.sample = blocks[0]
		}
		all = append(all, at)
		if block := settings.Block(f.Name); block != nil {
			all = append(all, inner(at, f.Name, placesIn(f.Fields, block), func(changed sdk.Settings) any { return changed })...)
		}
		if blocks := settings.Blocks(f.Name); len(blocks) > 0 {
			all = append(all, inner(at, fmt.Sprintf("%s[0]", f.Name), placesIn(f.Fields, blocks[0]), func(changed sdk.Settings) any {
				others := slices.Clone(blocks)
				others[0] = changed
				return others
			})...)
		}
	}
	return all
}

// inner are the places of a block, as places of what it stands in.
func inner(block place, path string, places []place, wrap func(sdk.Settings) any) []place {
	for i, p := range places {
		places[i].path = path + "." + p.path
		places[i].put = func(value any) sdk.Settings { return block.put(wrap(p.put(value))) }
	}
	return places
}
