// Package frontdoor has what the tests of front doors share: brokers with a real provider,
// and with one of a cloud on its fake. The tests are in the packages below it, one for each
// system whose own client they run.
package frontdoor

import (
	"fmt"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

// limits leave time to a slow machine.
const limits = "limits {\n  default_timeout = \"60s\"\n  create_timeout = \"5m\"\n}\n"

// Real starts a broker with sandboxes of gVisor and the given doors.
func Real(t testing.TB, doors string) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{Config: harness.Tenants + limits + doors + fmt.Sprintf(
		"provider \"self_managed\" {\n  runsc = %q\n  pool_size = 2\n  memory_mb = 256\n  queue_timeout = \"4m\"\n}\n", binaries.Runsc(t))})
}

// Cloud starts a broker with E2B's provider on its fake, and the given doors. The caller's
// TestMain calls e2bfake.Main.
func Cloud(t testing.TB, doors string) *harness.Broker {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := e2bfake.Start(e2bfake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, server.Close()) })
	return harness.Start(t, harness.Options{
		Config: harness.Tenants + limits + doors + fmt.Sprintf("provider \"e2b\" {\n  api_key = %q\n  api_url = %q\n  sandbox_url = %q\n}\n",
			e2bfake.DefaultAPIKey, server.APIURL, server.SandboxURL),
		Plugins: map[string]string{"e2b": filepath.Join(binaries.Dir(t), "plugins", "e2b")},
	})
}
