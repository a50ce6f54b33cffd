package admin_test

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// Whatever a setting is given, the file has that text and nothing else: it never
// becomes a part of the configuration.
func FuzzTextsOfSettings(f *testing.F) {
	for _, seed := range [][2]string{
		{"key", "value"},
		{"${env(\"HOME\")}", "%{ if true }"},
		{"a\" }\nprovider \"x\" {", "\"\n}\nadmin { token_sha256 = [] }\n"},
		{"$${", "\\\"\r\n\t\x00\u2028"},
		{"", "<<EOT\nx\nEOT"},
		{"****", "sealed(\"sb1:x\")"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, key, text string) {
		// JSON has only such texts, and HCL has each in one of its Unicode forms.
		key = cty.StringVal(strings.ToValidUTF8(key, "?")).AsString()
		text = cty.StringVal(strings.ToValidUTF8(text, "?")).AsString()
		d := newDaemon(t, one)
		_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{
			Provider: "p", Settings: map[string]any{"endpoint": text, "labels": map[string]any{key: text}, "zones": []any{text}},
		})
		cfg, diags := config.Load(d.file)
		assert.Assert(t, !diags.HasErrors(), "%v", diags)
		assert.Equal(t, len(cfg.Providers), 1)
		assert.Equal(t, len(cfg.Admin.TokenSHA256), 0)
		if err != nil {
			assert.Equal(t, d.text(), one)
			return
		}
		settings, diags := cfg.Provider("p").Settings(schema())
		assert.Assert(t, !diags.HasErrors(), "%v", diags)
		assert.Equal(t, settings["endpoint"], text)
		assert.DeepEqual(t, settings["labels"], map[string]string{key: text})
		assert.DeepEqual(t, settings["zones"], []string{text})
	})
}
