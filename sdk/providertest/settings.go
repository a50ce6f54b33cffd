package providertest

import (
	"maps"

	"github.com/sandbox-broker/sandbox-broker/sdk"
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
	if len(f.Options) == 0 {
		return nil
	}
	return []badValue{{"none-of-the-options", "is not among the options"}}
}

func outOfBounds(f sdk.Field) []badValue {
	var bad []badValue
	add := func(value any, why string) {
		if value != nil {
			bad = append(bad, badValue{value, why})
		}
	}
	if f.Min != nil {
		add(sized(f.Type, *f.Min-1), "is below min")
	}
	if f.Max != nil {
		add(sized(f.Type, *f.Max+1), "is above max")
	}
	return bad
}

// sized is a value of a type whose size, as bounds see it, is n; nil if there is
// none or it would be large.
func sized(t sdk.FieldType, n float64) any {
	const most = 100_000
	switch t {
	case sdk.TypeInteger, sdk.TypeNumber, sdk.TypeDuration:
		return n
	case sdk.TypeString, sdk.TypeList, sdk.TypeMap:
		if n < 0 || n > most {
			return nil
		}
	default:
		return nil
	}
	switch t {
	case sdk.TypeString:
		text := make([]byte, int(n))
		for i := range text {
			text[i] = 'x'
		}
		return string(text)
	case sdk.TypeList:
		list := make([]string, int(n))
		for i := range list {
			list[i] = "x"
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
	case sdk.TypeString, sdk.TypeList, sdk.TypeMap:
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
		if !f.Secret {
			continue
		}
		switch v := given[f.Name].(type) {
		case string:
			add(v)
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
