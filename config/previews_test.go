package config_test

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestAddressesOfPreviews(t *testing.T) {
	for address, want := range map[string]config.Previews{
		"https://*.preview.example.com":      {Scheme: "https", Domain: "preview.example.com"},
		"http://*.localhost:9385/":           {Scheme: "http", Domain: "localhost", Port: "9385"},
		"https://*.Preview.Example.com:8443": {Scheme: "https", Domain: "preview.example.com", Port: "8443"},
		"https://preview.example.com":        {},
		"*.preview.example.com":              {},
		"ftp://*.preview.example.com":        {},
		"https://*":                          {},
		"https://*.":                         {},
		"https://x.*.example.com":            {},
		"https://*.a b":                      {},
		"https://*.example.com/path":         {},
		"https://*.example.com?x":            {},
		"https://u@*.example.com":            {},
		"https://*.example.com:0x1":          {},
	} {
		cfg, diags := config.Parse("x.hcl", []byte(fmt.Sprintf("previews {\n  address = %q\n}\n", address)+smallest))
		assert.Equal(t, diags.HasErrors(), want == config.Previews{}, "%s: %v", address, diags)
		assert.Equal(t, cfg.Previews, want, address)
	}
}
