package e2b_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// TestTheSDKsSignAddressesOfAListenerOfTheDoor uses what uploadUrl and downloadUrl return as
// it is: the SDKs put it at the root, where a door with a path is not.
func TestTheSDKsSignAddressesOfAListenerOfTheDoor(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	assert.NilError(t, listener.Close())
	address := listener.Addr().String()
	frontdoor.Real(t, fmt.Sprintf("front_door \"e2b\" {\n  listen = %q\n}\n", address))
	dir := client(t)
	for _, sdk := range []string{"e2b", "e2b-before"} {
		t.Run(sdk, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "node", "signed.mjs", "http://"+address, harness.Token, sdk)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "E2B_VALIDATE_API_KEY=false") // as in use
			out, err := cmd.CombinedOutput()
			assert.NilError(t, err, "%s", out)
			assert.Equal(t, string(out), "done\n")
		})
	}
}
