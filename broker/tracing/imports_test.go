package tracing_test

import (
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Plugins and guests carry the name of a trace and nothing that could send one.
func TestNothingThatSendsTracesIsInAPlugin(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./plugins/...", "./sdk/...", "./cmd/sandbox-guest")
	list.Dir = "../.."
	out, err := list.Output()
	assert.NilError(t, err)
	deps := strings.Fields(string(out))
	assert.Assert(t, len(deps) > 100)
	for _, dep := range deps {
		for _, sender := range []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/proto"} {
			assert.Check(t, dep != sender && !strings.HasPrefix(dep, sender+"/"), dep)
		}
	}
}
