package e2b_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// toolsKey is a key of the form that tools ask for, and toolsTenant the tenant that has it.
const (
	toolsKey    = "e2b_0123456789abcdef0123456789abcdef01234567"
	toolsTenant = "tenant \"tools\" {\n  token_sha256 = [\"285c79b208f1b809feed44bd1339b85da6a5f0a9c2e0fb5a95792d7989af7232\"]\n}\n"
)

// tools are public programs that use E2B, as they are published. They know the broker by
// their environment alone.
type tools struct {
	dir string
	b   *harness.Broker
}

// command is one of their programs.
func (to tools) command(t *testing.T, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = to.dir
	cmd.Env = append(cmd.Environ(), "E2B_API_KEY="+toolsKey, "E2B_API_URL="+to.b.URL+"/e2b", "E2B_SANDBOX_URL="+to.b.URL+"/e2b", "HOME="+to.dir, "NO_COLOR=1", "DO_NOT_TRACK=1")
	return cmd
}

func (to tools) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := to.command(t, name, args...).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

// cli is E2B's own program for the command line.
func (to tools) cli(t *testing.T, args ...string) string {
	t.Helper()
	return to.run(t, filepath.Join("node_modules", ".bin", "e2b"), append([]string{"sandbox"}, args...)...)
}

func TestToolsUseSandboxes(t *testing.T) {
	tier.Full(t)
	to := tools{install(t, "tools"), frontdoor.Real(t, door+toolsTenant)}
	t.Run("ComputeSDK", func(t *testing.T) {
		assert.Equal(t, to.run(t, "node", "computesdk.mjs"), `run: {"exitCode":0,"stdout":"moin\n/home/user\n","stderr":""}
run that fails: {"exitCode":3,"stdout":"","stderr":"err\n"}
run in a directory: {"exitCode":0,"stdout":"/tmp\n","stderr":""}
python: {"exitCode":0,"stdout":"42\n","stderr":""}
readFile: "written ✓"
readdir: ["a.txt","deep"]
exists: [false,true]
getById: true
list: [true]
list after destroy: 0
getById after destroy: null
`)
	})
	t.Run("Mastra", func(t *testing.T) {
		assert.Equal(t, to.run(t, "node", "mastra.mjs"), `run: {"exitCode":0,"stdout":"moin\n/home/user\n","stderr":""}
run that fails: 3
files: "written ✓"
lifecycle: "pause"
at its timeout: "paused"
the same: true
state: "running"
files after the pause: "written ✓"
what ran goes on: true
stopped: "paused"
started: "running"
destroyed: false
`)
	})
	t.Run("E2B's command line", func(t *testing.T) {
		list := func() (all []struct{ SandboxID, State string }) {
			t.Helper()
			assert.NilError(t, json.Unmarshal([]byte(to.cli(t, "list", "--format", "json", "--state", "running,paused")), &all))
			return all
		}
		assert.Check(t, is.Len(list(), 0))
		to.cli(t, "create", "base", "--detach", "--timeout", "600")
		made := list()
		assert.Assert(t, is.Len(made, 1))
		id := made[0].SandboxID
		assert.Equal(t, made[0].State, "running")
		assert.Equal(t, to.cli(t, "exec", "-e", "X=y", "-c", "/tmp", id, "sh", "-c", "echo $X in $PWD"), "y in /tmp\n")
		failed, err := to.command(t, filepath.Join("node_modules", ".bin", "e2b"), "sandbox", "exec", id, "sh", "-c", "exit 7").CombinedOutput()
		assert.ErrorContains(t, err, "exit status 7", "%s", failed)
		assert.Check(t, is.Contains(to.cli(t, "info", id), id))
		to.cli(t, "pause", id)
		assert.Equal(t, list()[0].State, "paused")
		to.cli(t, "resume", id)
		assert.Equal(t, strings.TrimSpace(to.cli(t, "exec", id, "echo", "again")), "again")
		to.cli(t, "kill", id)
		assert.Check(t, is.Len(list(), 0))
	})
}
