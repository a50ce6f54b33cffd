package config_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// withSecrets is right as it stands and holds a secret in every form.
const withSecrets = `listen = "127.0.0.1:1"

provider "full" {
  env     = ["A"]
  api_key = "hunter2"
  region  = "eu" # comment
  headers = { "hunter2" = "hunter2" }
  labels  = { a = sealed("hunter2") }
  tokens  = [
    "hunter2",
    "x${upper}hunter2",
  ]
  text = <<EOT
hunter2 {
hunter2 = hunter2
 hunter2"
EOT
  auth {
    labels = {
      level = "hunter2}"
    }
    tls { format = "hunter2" }
    state = "hunter2"
    inner {
      listen = "hunter2" # }
    }
    format = "hunter2"
  }
}

audit {
  webhook       = "https://hunter2"
  webhook_token = "hunter2"
}

tenant "demo" {
  token_sha256 = [
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  ]
}
`

// A person's slip of one key must not put a secret on the screen, wherever in
// the file it happens.
func TestOneSlipShowsNoSecret(t *testing.T) {
	t.Parallel()
	check := func(src string) {
		cfg, diags := config.Parse("x.hcl", []byte(src))
		for _, p := range cfg.Providers {
			_, more := p.Settings(fullSchema())
			diags = diags.With(more)
		}
		var out strings.Builder
		assert.NilError(t, diags.Write(&out, config.Style{}))
		if strings.Contains(out.String(), secret) || strings.Contains(diags.Error(), secret) {
			t.Fatalf("%s\n\nshows:\n%s", src, out.String())
		}
	}
	lines := strings.Split(withSecrets, "\n")
	for i := range lines {
		check(strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), "\n"))
	}
	for i := range len(withSecrets) {
		check(withSecrets[:i] + withSecrets[i+1:])
		if strings.Contains(withSecrets[max(0, i-len(secret)):min(len(withSecrets), i+len(secret))], secret) {
			continue // the inserted character would only hide it from the test
		}
		for _, key := range []string{`"`, "{", "}", "[", "]", "=", "\n", "$", "#"} {
			check(withSecrets[:i] + key + withSecrets[i:])
		}
	}
}

// A setting of a plugin may have the name of one of the broker's, and what stands before
// it may look like the end of the block.
func TestWhatFollowsWithinAProviderIsStillTheProviders(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"a map":                         "  labels = {\n    a = 1\n  }\n",
		"a block":                       "  auth {\n    a = 1\n  }\n",
		"a block as the broker has one": "  log {\n    a = 1\n  }\n",
		"a block that is not closed":    "  auth {\n    a = 1\n",
		"a block that is closed twice":  "  auth {\n    a = 1\n  }\n  }\n",
		"a block with a label":          "  tls \"hunter2\" {\n  }\n",
		"a brace in a text":             "  a = \"}\"\n",
		"a brace in a template":         "  a = \"${env(\"}\")}$${}\"\n",
		"a brace in a comment":          "  # }\n  /* }\n} */\n",
		"a brace in a heredoc":          "  a = <<EOT\n}\nEOT\n",
		"a heredoc in a comment":        "  plugin = \"x\" # <<EOT\n",
		"another provider":              "}\nprovider \"z\" {\n",
		"a header with a slip":          "}\nprovder \"z\" {\n",
		"a header without its quote":    "}\nprovider \"z {\n",
		"a header without its quotes":   "}\nprovider z {\n",
		"a header with an equals sign":  "}\nprovider = \"z\" {\n",
		"a map in the block's place":    "}\nprovider = {\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, line := range []string{"listen", "  listen", "  listen = \"hunter2\" level", "  auth { env", "  labels = {\n    sha256"} {
				src := "provider \"x\" {\n" + before + line + " = \"hunter2\" \"\n}\n"
				_, diags := config.Parse("x.hcl", []byte(src))
				var out strings.Builder
				assert.NilError(t, diags.Write(&out, config.Style{}))
				assert.Check(t, diags.HasErrors() && !strings.Contains(out.String(), secret), "%s\nshows\n%s", src, out.String())
			}
		})
	}
}

// Who pastes a token where its sum belongs, or a key where its file does, does not
// see it on the screen again.
func TestATokenInThePlaceOfItsSumIsNotShown(t *testing.T) {
	t.Parallel()
	const sum, token = `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"`, "hunter2"
	for _, value := range []string{
		`"hunter2"`, `["hunter2"]`, "[" + sum + `, "hunter2"]`, "[hunter2]", "[\n    " + sum + ",\n    \"hunter2\",\n  ]", "[\n    " + sum + "\n    hunter2\n  ]",
		"[" + sum + "] # hunter2", `"hunter2`, `["hunter2`, "<<EOT\nhunter2\nEOT", `{ hunter2 = "hunter2" }`, "[" + sum + ", \"hunter2\n]",
	} {
		for _, block := range []string{"tenant \"a\" {\n  token_sha256 = %\n}\n", "admin {\n  token_sha256 = %\n}\n", "tenant \"a\" { token_sha256 = % }\n", "admin {\n  token_sha256 = %\n  listen = 5\n}\n"} {
			src := "provider \"x\" {}\n" + strings.Replace(block, "%", value, 1) + "tenant \"b\" {\n  token_sha256 = [5]\n}\n"
			_, diags := config.Parse("x.hcl", []byte(src))
			var out strings.Builder
			assert.NilError(t, diags.Write(&out, config.Style{}))
			assert.Check(t, diags.HasErrors() && !strings.Contains(out.String(), token), "%s\nshows\n%s", src, out.String())
		}
	}
	for _, own := range []string{"sbk_hunter2", "sbkey_hunter2"} {
		_, diags := config.Parse("x.hcl", []byte("key_file = \""+own+"\"\nlisten = \""+own+"\"\nstate = sealed(\"x\")\n"))
		var out strings.Builder
		assert.NilError(t, diags.Write(&out, config.Style{}))
		assert.Check(t, diags.HasErrors() && !strings.Contains(out.String(), "hunter2"), out.String())
	}
}
