package launch_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/launch"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestMain(m *testing.M) {
	watchdog.Main()
	goleak.VerifyTestMain(m)
}

// stumbling is a logger with which the launch of a provider of one label panics.
type stumbling struct {
	hclog.Logger
	label string
}

func (l stumbling) Named(string) hclog.Logger { return l }

func (l stumbling) With(args ...any) hclog.Logger {
	if slices.Contains(args, any(l.label)) {
		panic("out of cheese")
	}
	return l.Logger
}

func TestAPanicOverOnePluginIsThatPluginsError(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.Chmod(dir, 0o700))
	for _, name := range []string{"broken", "other", "used"} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 5\n"), 0o700))
	}
	sockets, err := os.MkdirTemp("", "la") //nolint:usetesting // t.TempDir is too long for a socket
	assert.NilError(t, err)
	defer func() { assert.Check(t, os.RemoveAll(sockets)) }()
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		RuntimeDir: sockets, Watchdog: "/proc/self/exe", Logger: stumbling{hclog.NewNullLogger(), "broken"},
	})
	assert.NilError(t, err)
	defer func() { assert.Check(t, launcher.Close()) }()
	var log bytes.Buffer
	starter := &launch.Starter{Plugins: launcher, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})}

	list, err := starter.Find(t.Context(), &config.Config{PluginDir: dir, Providers: []*config.Provider{{Label: "mine", Plugin: "used"}}})

	assert.NilError(t, err)
	assert.Assert(t, cmp.Len(list, 2))
	assert.Equal(t, list[0].Label, "broken")
	assert.Check(t, cmp.Contains(list[0].State.Reason, `the plugin "broken" made the broker stumble`))
	assert.Equal(t, list[1].Label, "other")
	assert.Check(t, cmp.Contains(list[1].State.Reason, "the plugin exited with status 5"))
	assert.Check(t, cmp.Contains(log.String(), "out of cheese"))
}

// A plugin without a block is started once, and again when its file is another one: the
// page that shows it is asked every few seconds.
func TestAPluginIsAskedOnceWhatItIs(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.Chmod(dir, 0o700))
	starts := filepath.Join(t.TempDir(), "starts")
	plugin := "#!/bin/sh\necho >> " + starts + "\nexit 5\n"
	write := func(name, text string) {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	write("one", plugin)
	sockets, err := os.MkdirTemp("", "la") //nolint:usetesting // t.TempDir is too long for a socket
	assert.NilError(t, err)
	defer func() { assert.Check(t, os.RemoveAll(sockets)) }()
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{RuntimeDir: sockets, Watchdog: "/proc/self/exe", Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	defer func() { assert.Check(t, launcher.Close()) }()
	starter := &launch.Starter{Plugins: launcher, Logger: hclog.NewNullLogger()}
	started := func(cfg *config.Config, plugins int) int {
		t.Helper()
		list, err := starter.Find(t.Context(), cfg)
		assert.NilError(t, err)
		assert.Assert(t, cmp.Len(list, plugins))
		text, err := os.ReadFile(starts)
		assert.NilError(t, err)
		return bytes.Count(text, []byte("\n"))
	}
	cfg := &config.Config{PluginDir: dir}
	first := started(cfg, 1)
	assert.Assert(t, first > 0)
	assert.Equal(t, started(cfg, 1), first)
	write("one", plugin+"# another\n")
	second := started(cfg, 1)
	assert.Assert(t, second > first, "the file is another one")
	used := &config.Config{PluginDir: dir, Providers: []*config.Provider{{Label: "mine", Plugin: "one"}}}
	assert.Equal(t, started(used, 0), second)
	assert.Assert(t, started(cfg, 1) > second, "what has a block is forgotten")
}
