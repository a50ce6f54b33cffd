package e2e_test

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// neverRefused fails the test when the broker has refused a configuration.
func neverRefused(t testing.TB, b *harness.Broker) {
	t.Helper()
	assert.Assert(t, !strings.Contains(b.Log(), refused), "%s", b.Log())
}

// A secret is sealed and its key replaced by the commands for it, while the broker
// runs.
func TestASecretIsSealedAndItsKeyReplacedWhileTheBrokerRuns(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-of-the-provider"
	b := startMock(t, "")
	keys := filepath.Join(b.Dir, "sealing.keys")
	command := func(input string, args ...string) string {
		t.Helper()
		result := icmd.RunCmd(icmd.Command(filepath.Join(binaries.Dir(t), "sandbox-broker"), args...), icmd.WithStdin(strings.NewReader(input)))
		result.Assert(t, icmd.Success)
		assert.Assert(t, !strings.Contains(result.Combined(), secret))
		return strings.TrimSpace(result.Stdout())
	}
	command("", "keygen", keys)
	sealed := command(secret, "seal", "--key-file", keys)
	rewrite(t, b, func(text string) string {
		return "key_file = \"sealing.keys\"\n" + strings.Replace(text, "provider \"mock\" {", "provider \"mock\" {\n  secret = "+sealed, 1)
	})
	awaitLog(t, b, inForce, 1)

	command("", "keygen", "--add", keys)
	assert.Assert(t, is.Contains(command("", "rotate", "-c", b.ConfigFile()), "1 value sealed anew"))
	both, err := os.ReadFile(keys)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(keys, []byte(strings.SplitAfter(string(both), "\n")[0]), 0o600))

	// Another tenant comes into force only if the broker could read all of it.
	document, err := edit.Open(b.ConfigFile())
	assert.NilError(t, err)
	assert.NilError(t, document.AddTenant("late", sha256.Sum256([]byte("token-of-late"))))
	assert.NilError(t, document.Save())
	awaitLog(t, b, "tenants added: late", 1)
	neverRefused(t, b)
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	assert.Assert(t, !strings.Contains(string(text), sealed) && !strings.Contains(string(text), secret) && !strings.Contains(b.Log(), secret))
}

// Files that appear beside the main one, and edits of them, come into force.
func TestIncludedFilesAreFollowed(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	dir := filepath.Join(b.Dir, "conf.d")
	assert.NilError(t, os.Mkdir(dir, 0o755))
	rewrite(t, b, func(text string) string { return "include = [\"conf.d/*.hcl\"]\n" + text })
	assert.NilError(t, os.WriteFile(filepath.Join(dir, ".new"), []byte("tenant \"late\" { token_sha256 = [\""+strings.Repeat("ab", 32)+"\"] }\n"), 0o644))
	assert.NilError(t, os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "late.hcl")))
	awaitLog(t, b, "tenants added: late", 1)

	document, err := edit.Open(b.ConfigFile())
	assert.NilError(t, err)
	other, err := edit.Open(b.ConfigFile())
	assert.NilError(t, err)
	const token = "token-of-late"
	assert.NilError(t, document.AddToken("late", sha256.Sum256([]byte(token))))
	assert.NilError(t, document.Save())
	awaitLog(t, b, inForce, 2)
	assert.Equal(t, b.Do(http.MethodPost, "/api/v1/execute", token, map[string]any{"language": "mock", "code": `{"stdout": "works"}`}).Status, http.StatusOK)

	assert.NilError(t, other.Remove(edit.Tenant("late")))
	assert.Assert(t, errors.Is(other.Save(), &sdk.Error{Code: sdk.CodeConflict}), "what was read before is not the file any more")
	neverRefused(t, b)
}
