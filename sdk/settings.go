package sdk

import (
	"github.com/go-viper/mapstructure/v2"
)

// Settings are the values of a provider block, by field name. A value has the
// Go type that its FieldType documents; a setting that was not given and has no
// default is absent. Secrets are in the clear: do not log settings.
type Settings map[string]any

// Decode copies the settings into a struct whose fields carry `config:"name"`
// tags. Fields that Decode finds no setting for keep their value. A setting
// without a field is an error: a typo in a tag shall not go unnoticed. A block goes into
// a struct or a pointer to one, repeated blocks into a slice of them. Its errors carry
// SB000: settings that obey the schema and do not fit the struct are a bug of the provider.
func (s Settings) Decode(into any) error {
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result:      into,
		TagName:     "config",
		ErrorUnused: true,
	})
	if err != nil {
		return Errorf(CodeInternal, "decode settings: %w", err)
	}
	if err := decoder.Decode(map[string]any(s)); err != nil {
		return Errorf(CodeInternal, "decode settings: %w", err)
	}
	return nil
}
