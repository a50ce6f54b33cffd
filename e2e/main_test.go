package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// mockPlugin is the path of the mock provider, built once.
var mockPlugin string

func TestMain(m *testing.M) {
	e2bfake.Main()
	dir, err := os.MkdirTemp("", "e2e")
	if err == nil {
		mockPlugin = filepath.Join(dir, "mock")
		build := exec.Command("go", "build", "-o", mockPlugin, "./mockprovider")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
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
