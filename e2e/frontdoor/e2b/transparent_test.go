package e2b_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

// TestTheDoorIsTransparent has the same program use the imitation of E2B's cloud, once as it
// is and once with the broker in between: the door in front, and the provider for E2B behind.
// What it prints differs where the page of the door says so, and nowhere else.
func TestTheDoorIsTransparent(t *testing.T) {
	tier.Full(t)
	binaries.Needs(t, "bwrap", "bubblewrap")
	dir := client(t)
	server, err := e2bfake.Start(e2bfake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, server.Close()) })
	b := frontdoor.On(t, frontdoor.E2B, door)
	for _, sdk := range []string{"e2b", "e2b-before"} {
		t.Run(sdk, func(t *testing.T) {
			direct := printed(t, dir, server.APIURL, server.SandboxURL, e2bfake.DefaultAPIKey, sdk)
			through := printed(t, dir, b.URL+"/e2b", b.URL+"/e2b", harness.Token, sdk)
			assert.Equal(t, len(direct), len(through))
			var differences strings.Builder
			for i, line := range direct {
				if line != through[i] {
					fmt.Fprintf(&differences, "- %s\n+ %s\n", line, through[i])
				}
			}
			golden.Assert(t, differences.String(), "transparent.diff")
		})
	}
}

// printed is what the program prints, by lines.
func printed(t *testing.T, dir, apiURL, sandboxURL, key, sdk string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "transparent.mjs", apiURL, sandboxURL, key, sdk)
	cmd.Dir = dir
	// The imitation has a certificate that this process trusts.
	cmd.Env = append(cmd.Environ(), "E2B_VALIDATE_API_KEY=false", "NODE_EXTRA_CA_CERTS="+os.Getenv("SSL_CERT_FILE"))
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	assert.Assert(t, strings.HasSuffix(string(out), "\ndone\n"), "%s", out)
	return strings.Split(string(out), "\n")
}
