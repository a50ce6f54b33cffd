// Package e2b_test has E2B's published SDKs use sandboxes through the front door.
package e2b_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

func TestMain(m *testing.M) { frontdoor.Main(m) }

const door = "front_door \"e2b\" { }\n"

// client installs the SDKs.
func client(t *testing.T) string { return install(t, "client") }

// install installs what a directory of the test data asks for, and returns where.
func install(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))))
	npm.Install(t, dir)
	return dir
}

// use has an SDK use sandboxes, and returns which features worked and which were refused.
func use(t *testing.T, dir, broker, sdk, brokers string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "client.mjs", broker+"/e2b", harness.Token, sdk, brokers)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "E2B_VALIDATE_API_KEY=false") // the harness's token is none of E2B's form
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	assert.NilError(t, err, "%s%s", out, &said)
	return string(out)
}

func TestTheSDKsUseSandboxes(t *testing.T) {
	dir := client(t)
	var features frontdoor.Features
	frontdoor.Each(t, frontdoor.Daytona, func(t *testing.T, provider string) {
		b := frontdoor.On(t, provider, door)
		for _, sdk := range []string{"e2b", "e2b-before"} {
			if sdk != "e2b" && provider != frontdoor.SelfManaged {
				continue // the providers differ in what the newest one finds too
			}
			t.Run(sdk, func(t *testing.T) {
				if sdk != "e2b" {
					tier.Full(t)
				}
				features.ReportOutput(t, provider, use(t, dir, b.URL, sdk, "one"))
			})
		}
	})
	t.Run("through several brokers", func(t *testing.T) {
		features.ReportOutput(t, frontdoor.SelfManaged, use(t, dir, frontdoor.Several(t, door), "e2b", "several"))
	})
	if !t.Failed() {
		features.CheckPage(t, "e2b")
	}
}
