package config_test

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func withTemplate(inner string) []byte {
	return fmt.Appendf(nil, `provider "x" {}
tenant "acme" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
template "data" {
%s
}
`, inner)
}

func TestATemplateOfADockerfile(t *testing.T) {
	t.Parallel()
	cfg, diags := config.Parse("/etc/broker/x.hcl", withTemplate(`
  dockerfile = "data/Dockerfile"
  context    = "."
  build_args = { A = "b" }
  network {
    allow "packages.example.com" { methods = ["GET"] }
    secret "index" {
      value = "not-so-secret"
      hosts = ["packages.example.com"]
    }
  }
`))
	assert.Assert(t, !diags.HasErrors(), "%s", diags)
	assert.DeepEqual(t, cfg.Templates, []config.Template{{
		Name: "data", Dockerfile: "/etc/broker/data/Dockerfile", Context: "/etc/broker", BuildArgs: map[string]string{"A": "b"},
		Network: &sdk.NetworkPolicy{
			Rules:   []sdk.NetworkRule{{Host: "packages.example.com", Methods: []string{"GET"}}},
			Secrets: []sdk.NetworkSecret{{Name: "index", Value: "not-so-secret", Header: "Authorization", Hosts: []string{"packages.example.com"}}},
		},
	}})
}

func TestMistakesInTemplates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ inner, says string }{
		"nothing to make it of":         {`memory_mb = 100`, "give from, rootfs or dockerfile"},
		"an image and a file":           {"from = \"a\"\ndockerfile = \"b\"", "give one of from, rootfs and dockerfile"},
		"a directory and a file":        {"rootfs = \"a\"\ndockerfile = \"b\"", "give one of from, rootfs and dockerfile"},
		"a context without a file":      {"from = \"a\"\ncontext = \"b\"", "context is for a template that has a dockerfile"},
		"arguments without a file":      {"from = \"a\"\nbuild_args = { A = \"b\" }", "build_args is for a template that has a dockerfile"},
		"a network without a file":      {"from = \"a\"\nnetwork {}", "A block network is for a template that has a dockerfile"},
		"two networks":                  {"dockerfile = \"a\"\nnetwork {}\nnetwork {}", "A template has one block network"},
		"a network with a name":         {"dockerfile = \"a\"\nnetwork \"x\" {}", "has no label"},
		"a network that is no policy":   {"dockerfile = \"a\"\nnetwork {\nallow \"127.0.0.1\" {}\nallow \"a..b\" {}\n}", "The network"},
		"another block":                 {"dockerfile = \"a\"\nquota {}", "holds no other blocks"},
		"an empty file":                 {`dockerfile = ""`, "dockerfile"},
		"arguments that are no strings": {"dockerfile = \"a\"\nbuild_args = { A = [1] }", "build_args"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := config.Parse("x.hcl", withTemplate(test.inner))
			assert.Assert(t, diags.HasErrors())
			assert.ErrorContains(t, diags, test.says)
		})
	}
}
