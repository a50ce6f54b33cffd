package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// An ordinary user gets the same, less the limits of the host, and is told so.
func TestAnOrdinaryUserCanRunIt(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the other tests run as an ordinary user already")
	}
	const nobody = 65534
	index := packageindex.Start(t)
	index.AddWheel("greeting", "1.2", "def greet(name): return f'Hello {name}!'")
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + fmt.Sprintf("provider \"self_managed\" {\n  pool_size = 1\n  memory_mb = 256\n  packages = \"on\"\n  package_index = %q\n}\n", index.Simple()),
		User:   nobody,
	})
	e := b.Execute(t, map[string]any{"language": "python", "code": "import os; print(os.uname().release, os.getuid())"})
	assert.Equal(t, e.Stdout, "4.19.0-gvisor 1000\n")
	e = b.Execute(t, map[string]any{"language": "python", "code": "x = b'x' * (2 << 30)"})
	assert.Equal(t, e.Status, "out_of_memory", "the guest's own limit holds without cgroups")
	answer := b.Do(http.MethodGet, "/api/v1/providers", harness.Token, nil)
	assert.Check(t, is.Contains(string(answer.Body), "no host limits on memory, CPU and processes"))
	assert.Check(t, is.Contains(b.Log(), "no host limits on memory, CPU and processes"))
	for range 2 {
		e = b.Execute(t, map[string]any{
			"language": "python", "requirements": []string{"greeting"},
			"code": "import greeting, os; print(greeting.greet('you'), os.readlink('/workspace/.packages/python/greeting.py')[:22])",
		})
		assert.Equal(t, e.Stdout, "Hello you! /opt/sandbox/packages/\n", "layers of packages need no root: %+v", e)
	}
}
