package pluginhost_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
)

// TestBeTheBroker is what the copy of this program runs: it launches a plugin,
// says its number, and waits to be killed.
func TestBeTheBroker(t *testing.T) {
	if os.Getenv("PLUGINHOST_TEST_BROKER") == "" {
		t.Skip("runs in a process of its own only")
	}
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		PluginDir:  os.Getenv("PLUGINHOST_TEST_PLUGINS"),
		RuntimeDir: os.Getenv("PLUGINHOST_TEST_RUNTIME"),
		Logger:     hclog.NewNullLogger(),
		LogLevel:   "info",
		Watchdog:   "/proc/self/exe", Adopt: true,
	})
	assert.NilError(t, err)
	process, err := launcher.Launch(t.Context(), pluginhost.Spec{Label: "box", Plugin: "mock"})
	assert.NilError(t, err)
	path := os.Getenv("PLUGINHOST_TEST_BROKER")
	assert.NilError(t, os.WriteFile(path+".new", []byte(fmt.Sprint(process.PID())), 0o600))
	assert.NilError(t, os.Rename(path+".new", path))
	select {} // until it is killed
}

// otherBroker starts one and returns its plugin's number and what kills it.
func (h *host) otherBroker(t *testing.T) (plugin int, kill func()) {
	t.Helper()
	said := filepath.Join(t.TempDir(), "pid")
	broker := exec.Command(os.Args[0], "-test.run", "^TestBeTheBroker$")
	broker.Env = append(os.Environ(),
		"PLUGINHOST_TEST_BROKER="+said, "PLUGINHOST_TEST_PLUGINS="+plugins, "PLUGINHOST_TEST_RUNTIME="+h.runtimeDir)
	assert.NilError(t, broker.Start())
	poll.WaitOn(t, poll.FileExists(said), poll.WithTimeout(2*time.Minute))
	return pidIn(t, said), func() {
		assert.NilError(t, broker.Process.Kill())
		_ = broker.Wait()
	}
}
