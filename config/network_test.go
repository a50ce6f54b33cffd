package config_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func withNetwork(inner string) string {
	return `provider "x" {}
tenant "acme" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
  network {
` + inner + `
  }
}
`
}

func TestANetworkOfATenant(t *testing.T) {
	t.Parallel()
	cfg, diags := config.Parse("x.hcl", []byte(withNetwork(`
    max_connections = 5
    tenant_bytes    = 1000
    allow "pypi.org" { methods = ["GET"] }
    allow "pypi.org" {
      methods = ["POST"]
      paths   = ["/upload/*"]
      ports   = [443]
    }
    allow "db.corp.example" {
      ports   = [5432]
      tcp     = true
      private = true
    }
    secret "key" {
      value = "hunter2hunter2"
      hosts = ["*.example.com"]
    }`)))
	assert.Assert(t, is.Len(diags, 0))
	assert.DeepEqual(t, cfg.Tenants[0].Network, &config.Network{
		MaxConnections: 5, TenantBytes: 1000,
		Rules: []sdk.NetworkRule{
			{Host: "pypi.org", Methods: []string{"GET"}},
			{Host: "pypi.org", Methods: []string{"POST"}, Paths: []string{"/upload/*"}, Ports: []int{443}},
			{Host: "db.corp.example", Ports: []int{5432}, TCP: true, Private: true},
		},
		Secrets: []sdk.NetworkSecret{{Name: "key", Header: "Authorization", Value: "hunter2hunter2", Hosts: []string{"*.example.com"}}},
	})
}

func TestASecretOfANetworkIsNotShown(t *testing.T) {
	t.Parallel()
	for name, inner := range map[string]string{
		"too short":           `secret "key" { value = "hunter2", hosts = ["a.example.com"] }`,
		"no host":             "secret \"key\" {\n value = \"hunter2hunter2\"\n }",
		"every host":          "secret \"key\" {\n value = \"hunter2hunter2\"\n hosts = [\"*\"]\n }",
		"a header of lengths": "secret \"key\" {\n value = \"hunter2hunter2\"\n header = \"Content-Length\"\n hosts = [\"a.example.com\"]\n }",
		"no text":             "secret \"key\" {\n value = \"hunter2\\nhunter2\"\n hosts = [\"a.example.com\"]\n }",
		"a name twice":        strings.Repeat("secret \"key\" {\n value = \"hunter2hunter2\"\n hosts = [\"a.example.com\"]\n }\n", 2),
		"another setting":     "secret \"key\" {\n value = \"hunter2hunter2\"\n walue = \"hunter2hunter2\"\n hosts = [\"a.example.com\"]\n }",
	} {
		_, diags := config.Parse("x.hcl", []byte(withNetwork(inner)))
		var shown strings.Builder
		assert.NilError(t, diags.Write(&shown, config.Style{}))
		assert.Check(t, diags.HasErrors(), name)
		assert.Check(t, !strings.Contains(shown.String(), "hunter2"), "%s: %s", name, shown.String())
	}
}

func TestNetworksThatAreNone(t *testing.T) {
	t.Parallel()
	for inner, want := range map[string]string{
		`allow "" {}`:                                            "must match",
		`allow "Example.com" {}`:                                 "must match",
		`allow "http://example.com" {}`:                          "must match",
		`allow "127.1" {}`:                                       "neither the name of a host",
		`allow "*.1.2.3.4" {}`:                                   "neither the name of a host",
		`allow "localhost" {}`:                                   "neither the name of a host",
		`allow "a.b" { methods = ["get"] }`:                      "method",
		`allow "a.b" { paths = ["x"] }`:                          "path",
		`allow "a.b" { paths = ["/../x"] }`:                      "path",
		`allow "a.b" { ports = [0] }`:                            "ports",
		`deny "a.b" {}`:                                          "Unknown block",
		`allow = ["a.b"]`:                                        "allow",
		"allow \"a.b\" {\n tcp = true\n methods = [\"GET\"]\n }": "any protocol",
	} {
		_, diags := config.Parse("x.hcl", []byte(withNetwork(inner)))
		assert.Check(t, diags.HasErrors(), inner)
		assert.Check(t, is.Contains(diags.Error(), want), inner)
	}
}
