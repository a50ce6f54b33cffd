package sdk_test

import (
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// The contract stands without its wiring: an author who reads or imports it gets no gRPC.
func TestTheContractKnowsNothingOfItsWiring(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	for _, path := range strings.Fields(string(out)) {
		for _, wiring := range []string{"google.golang.org/", "github.com/hashicorp/go-plugin", "github.com/sandbox-broker/sandbox-broker/sdk/"} {
			assert.Check(t, !strings.HasPrefix(path, wiring), "%s is imported, directly or not", path)
		}
	}
}
