package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

// startE2B starts a broker with the E2B provider, and a fake of E2B.
func startE2B(t *testing.T) (*harness.Broker, *e2bfake.Server) {
	t.Helper()
	server := fakeE2B(t)
	return harness.Start(t, e2bOptions(t, server)), server
}

func fakeE2B(t *testing.T) *e2bfake.Server {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := e2bfake.Start(e2bfake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, server.Close())
		assert.Check(t, len(server.Unread()) == 0, "what was sent and nobody reads: %q", server.Unread())
	})
	return server
}

func e2bOptions(t *testing.T, server *e2bfake.Server) harness.Options {
	return harness.Options{
		Config:  harness.Tenants + e2bBlock(server),
		Plugins: map[string]string{"e2b": filepath.Join(binaries.Dir(t), "plugins", "e2b")},
	}
}

// e2bBlock is the provider block.
func e2bBlock(server *e2bfake.Server) string {
	return fmt.Sprintf("provider \"e2b\" {\n  api_key = %q\n  api_url = %q\n  sandbox_url = %q\n}\n", e2bfake.DefaultAPIKey, server.APIURL, server.SandboxURL)
}

// What a provider in the process of a test cannot show: its own tests run all the rest.
// The cases that end a process leave the instance that it had, as a broker would.
func TestTheE2BPluginPassesTheCasesAboutProcesses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := fakeE2B(t)
	file := filepath.Join(t.TempDir(), "sandbox.hcl")
	assert.NilError(t, os.WriteFile(file, []byte(e2bBlock(server)), 0o600))
	result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "plugin", "verify", "--config", file,
		"--run", "^(process|description|configure|isolation|lifecycle)/", filepath.Join(binaries.Dir(t), "plugins", "e2b"))
	assert.NilError(t, result.Error, result.Combined())
}

func TestCodeRunsInE2BThroughTheBroker(t *testing.T) {
	t.Parallel()
	b, server := startE2B(t)
	for language, code := range map[string]string{
		"python":     "def main(a, b):\n    print('working')\n    return a + b\n",
		"javascript": "function main({a, b}) {\n  console.log('working');\n  return a + b;\n}\n",
	} {
		got := b.Execute(t, map[string]any{"language": language, "code": code, "arguments": map[string]any{"a": 20, "b": 22}})
		assert.Equal(t, got.Status, "succeeded", "%+v", got)
		assert.Equal(t, got.Stdout, "working\n")
		assert.Equal(t, string(got.Result), "42")
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(server.Sandboxes(), 0)) }, poll.WithTimeout(2*time.Minute))
	assert.Check(t, !strings.Contains(b.Log(), e2bfake.DefaultAPIKey), "the key is in the log")
}
