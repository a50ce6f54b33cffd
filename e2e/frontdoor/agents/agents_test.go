// Package agents_test runs the agents of examples/agents, which do the same by four clients,
// against one broker with sandboxes of gVisor, and compares what they print with one golden.
package agents_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
)

const doors = "front_door \"e2b\" { }\nfront_door \"mcp\" { }\n" +
	"front_door \"opensandbox\" {\n  network = \"deny\"\n  images = { \"python:3.12\" = \"\" }\n}\n"

// agents are the commands.
var agents = map[string][]string{
	"REST":        {"bash", "rest.sh"},
	"E2B":         {"node", "e2b.mjs"},
	"OpenSandbox": {"node", "opensandbox.mjs"},
	"MCP":         {"node", "mcp.mjs"},
}

// install copies the agents, installs their clients and returns where.
func install(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"npm", "curl", "jq"} {
		binaries.Needs(t, program, program)
	}
	dir := t.TempDir()
	from := filepath.Join("..", "..", "..", "examples", "agents")
	for _, pattern := range []string{"*.mjs", "*.sh", "*.py", "package*.json", "plan/*"} {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		assert.NilError(t, err)
		assert.Assert(t, len(files) > 0, pattern)
		for _, file := range files {
			content, err := os.ReadFile(file)
			assert.NilError(t, err)
			to := filepath.Join(dir, strings.TrimPrefix(file, from))
			assert.NilError(t, os.MkdirAll(filepath.Dir(to), 0o700))
			assert.NilError(t, os.WriteFile(to, content, 0o600))
		}
	}
	npm.Install(t, dir)
	return dir
}

// run has an agent do its work.
func run(t *testing.T, dir string, command []string, url, token string) (out, said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "BROKER_URL="+url, "BROKER_TOKEN="+token,
		"E2B_VALIDATE_API_KEY=false") // the harness's token is none of E2B's form
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func TestTheAgentsDoTheSame(t *testing.T) {
	dir := install(t)
	b := frontdoor.Real(t, doors)
	for name, command := range agents {
		t.Run(name, func(t *testing.T) {
			out, said, err := run(t, dir, command, b.URL, harness.Token)
			assert.NilError(t, err, "%s%s", out, said)
			golden.Assert(t, out, "agents.json")
		})
		t.Run(name+" with a wrong token", func(t *testing.T) {
			out, said, err := run(t, dir, command, b.URL, "e2b_0123456789")
			var exit *exec.ExitError
			assert.Check(t, cmp.ErrorType(err, exit))
			assert.Check(t, cmp.Equal(out, ""))
			assert.Check(t, cmp.Contains(said, "SB011"))
			t.Log(said)
		})
	}
	t.Run("no sandbox is left", func(t *testing.T) {
		answer := b.Do("GET", "/api/v1/instances", harness.Token, nil)
		assert.Check(t, cmp.Contains(string(answer.Body), `"instances":[]`))
	})
}

func TestTheOrdersAreThoseOfTheirProgram(t *testing.T) {
	binaries.Needs(t, "python3", "python3")
	cmd := exec.Command("python3", "orders.py")
	cmd.Dir = filepath.Join("..", "..", "..", "examples", "agents")
	out, err := cmd.Output()
	assert.NilError(t, err)
	checked, err := os.ReadFile(filepath.Join(cmd.Dir, "plan", "orders.csv"))
	assert.NilError(t, err)
	assert.Equal(t, string(out), string(checked))
}

// A row of the table on the first page: the file, and what it is said to call.
var row = regexp.MustCompile(`(?m)^\| \[[^]]+\]\((examples/agents/[^)]+)\) \|(.*)$`)

func TestTheFirstPageShowsWhatTheAgentsCall(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	assert.NilError(t, err)
	rows := row.FindAllStringSubmatch(string(page), -1)
	assert.Equal(t, len(rows), len(agents))
	for _, row := range rows {
		source, err := os.ReadFile(filepath.Join(root, row[1]))
		assert.NilError(t, err)
		calls := strings.Split(row[2], "`")
		assert.Equal(t, len(calls), 7, "three calls in %q", row[2])
		for i := 1; i < len(calls); i += 2 {
			assert.Check(t, cmp.Contains(string(source), calls[i]), row[1])
		}
	}
}
