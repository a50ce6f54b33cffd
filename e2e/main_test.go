package e2e_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// mockPlugin is the path of the mock provider, built once.
var mockPlugin string

func TestMain(m *testing.M) {
	e2bfake.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var remove func()
	var err error
	if mockPlugin, remove, err = binaries.BuildMock(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	return m.Run()
}

// startReal starts a broker with the self-managed provider.
func startReal(t testing.TB, settings string) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config: harness.Tenants + fmt.Sprintf("limits {\n  default_timeout = \"20s\"\n}\nprovider \"self_managed\" {\n  runsc = %q\n  pool_size = 4\n  memory_mb = 256\n  %s\n}\n", binaries.Runsc(t), settings),
	})
}

// startMock starts a broker with the mock provider.
func startMock(t testing.TB, settings string) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config:  harness.Tenants + fmt.Sprintf("provider \"mock\" {\n  %s\n}\n", settings),
		Plugins: map[string]string{"mock": mockPlugin},
	})
}
