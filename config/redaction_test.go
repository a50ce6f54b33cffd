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
