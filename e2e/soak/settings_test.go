package soak_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const adminToken = "token-of-admin"

// settings are what changes from one file to the next.
type settings struct {
	// token is of a tenant that only this file has: whether it works tells whether
	// the file is in force.
	token string
	// mark is a setting of the mock provider, which executions repeat.
	mark     string
	output   int
	memoryMB int
	spare    bool
	logLevel string
}

// writer writes configurations for one broker.
type writer struct {
	secret string // sealed with the key of keyFile
	runsc  string
}

const keyFile = "sealing.keys"

func newWriter(t testing.TB, key string) writer {
	t.Helper()
	ring, err := seal.ParseKeys(key)
	assert.NilError(t, err)
	secret, err := ring.Seal("a secret of the mock provider")
	assert.NilError(t, err)
	return writer{secret: secret, runsc: binaries.Runsc(t)}
}

// text is a whole configuration but for what the harness puts before it.
func (w writer) text(s settings) string {
	text := fmt.Sprintf(`
key_file = %q
log {
  level = %q
}
metrics {
  listen = "127.0.0.1:0"
}
limits {
  output = %d
}
providers {
  active = "mock"
}
provider "mock" {
  mark   = %q
  secret = sealed(%q)
}
provider "self_managed" {
  runsc     = %q
  pool_size = 1
  memory_mb = %d
}
admin {
  token_sha256 = [%q]
}
tenant "now" {
  token_sha256 = [%q]
}
`, keyFile, s.logLevel, s.output, s.mark, w.secret, w.runsc, s.memoryMB, sum(adminToken), sum(s.token)) + harness.Tenants
	if s.spare {
		text += "provider \"spare\" {\n  plugin = \"mock\"\n}\n"
	}
	return text
}

func sum(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

func startBroker(t testing.TB) (*harness.Broker, writer, settings) {
	t.Helper()
	key := seal.NewKey()
	w := newWriter(t, key)
	first := settings{token: "token-of-the-start", mark: "good-start", output: 1 << 20, memoryMB: 256, logLevel: "info"}
	b := harness.Start(t, harness.Options{
		Config: w.text(first),
		// A plugin that exits at its start has the same executable.
		Plugins: map[string]string{"mock": mockPlugin, "mock_exit": mockPlugin},
		Prepare: func(dir string) {
			assert.NilError(t, os.WriteFile(filepath.Join(dir, keyFile), []byte(key+"\n"), 0o600))
		},
	})
	return b, w, first
}

// head is what the harness wrote before the configuration.
func head(t testing.TB, b *harness.Broker) string {
	t.Helper()
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	before, _, found := strings.Cut(string(text), "\nkey_file")
	assert.Assert(t, found)
	return before
}

// works reports whether a tenant's token does.
func works(b *harness.Broker, token string) (bool, error) {
	answer := b.Do(http.MethodGet, "/api/v1/providers", token, nil)
	switch {
	case answer.Err != nil:
		return false, answer.Err
	case answer.Status == http.StatusUnauthorized:
		return false, nil
	case answer.Status != http.StatusOK:
		return false, fmt.Errorf("HTTP %d: %s", answer.Status, answer.Body)
	}
	return true, nil
}
