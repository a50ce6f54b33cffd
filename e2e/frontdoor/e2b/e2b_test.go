// Package e2b_test has E2B's published SDKs use sandboxes through the front door.
package e2b_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

func TestMain(m *testing.M) { frontdoor.Main(m) }

const door = "front_door \"e2b\" { }\n"

// client installs the SDKs.
func client(t *testing.T) string { return install(t, "client") }

// install installs what a directory of the test data asks for, and returns where.
func install(t *testing.T, name string) string {
	t.Helper()
	binaries.Needs(t, "npm", "npm")
	dir := t.TempDir()
	assert.NilError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))))
	npm := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		binaries.Missing(t, "npm cannot install what uses E2B: "+string(out))
	}
	return dir
}

// use has an SDK use sandboxes, and returns which features worked.
func use(t *testing.T, dir string, b *harness.Broker, sdk string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "client.mjs", b.URL+"/e2b", harness.Token, sdk)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "E2B_VALIDATE_API_KEY=false") // the harness's token is none of E2B's form
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

// everywhere is what the SDKs find with each provider, but for bash, whose contexts not
// each has.
const everywhere = `create, get, list works
timeouts works
commands works
commands in the background works
files works
watches of files works
terminals works
signed addresses of files works
metrics works
pause and resume works
snapshots, templates, volumes refused
code with state, results and errors works
code in JavaScript works
code in bash %s
contexts of code works
R and Java refused
done
`

func TestTheSDKsUseSandboxesOfGVisor(t *testing.T) {
	b, dir := frontdoor.Real(t, door), client(t)
	for _, sdk := range []string{"e2b", "e2b-before"} {
		t.Run(sdk, func(t *testing.T) { assert.Equal(t, use(t, dir, b, sdk), fmt.Sprintf(everywhere, "works")) })
	}
}

func TestTheSDKsUseSandboxesOfACloud(t *testing.T) {
	b, dir := frontdoor.On(t, frontdoor.E2B, door), client(t)
	assert.Equal(t, use(t, dir, b, "e2b"), fmt.Sprintf(everywhere, "refused"))
}
