package pluginhost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// plugins is a directory with the mock provider under the name "mock", built
// once: a program that was just written may still be busy when it is started.
var plugins string

func TestMain(m *testing.M) {
	watchdog.Main()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if os.Getenv("PLUGINHOST_TEST_BROKER") != "" {
		return m.Run(), nil // see TestBeTheBroker
	}
	dir, err := os.MkdirTemp("", "ph")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	plugins = dir
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "mock"), "../../e2e/mockprovider")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("build the mock provider: %w", err)
	}
	for mode := range badStarts() {
		if err := os.Link(filepath.Join(dir, "mock"), filepath.Join(dir, "mock_"+mode)); err != nil {
			return 0, err
		}
	}
	for _, mode := range []string{"badlog", "deaf", "liar"} {
		if err := os.Link(filepath.Join(dir, "mock"), filepath.Join(dir, "mock_"+mode)); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

// host is a launcher with its surroundings. When the test ends it checks that
// nothing is left: no goroutine, no descriptor, no socket directory.
type host struct {
	*pluginhost.Launcher
	t          *testing.T
	log        *logBuffer
	logger     hclog.Logger
	runtimeDir string
	stateDir   string
}

func newHost(t *testing.T, change ...func(*pluginhost.LauncherOptions)) *host {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	descriptors := openDescriptors(t)
	h := &host{t: t, log: &logBuffer{}, stateDir: t.TempDir()}
	h.logger = hclog.New(&hclog.LoggerOptions{Output: h.log, Level: hclog.Debug, JSONFormat: true})
	runtimeDir, err := os.MkdirTemp("", "rt") //nolint:usetesting // t.TempDir is too long for a socket
	assert.NilError(t, err)
	h.runtimeDir = runtimeDir
	options := pluginhost.LauncherOptions{PluginDir: plugins, RuntimeDir: runtimeDir, Logger: h.logger, Watchdog: "/proc/self/exe"}
	for _, c := range change {
		c(&options)
	}
	h.Launcher, err = pluginhost.NewLauncher(options)
	assert.NilError(t, err)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(runtimeDir, "sandbox-broker-*", "*"))
		assert.Check(t, err)
		assert.Check(t, len(left) == 0, "sockets left: %v", left)
		assert.Check(t, h.Close())
		assert.Check(t, os.Remove(runtimeDir), "the runtime directory is not empty")
		goleak.VerifyNone(t, leaks)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			now := openDescriptors(t)
			for fd, target := range now {
				if _, before := descriptors[fd]; !before && !strings.HasPrefix(target, "anon_inode") && !strings.HasPrefix(target, "/proc/") {
					return poll.Continue("descriptor %s is open: %s", fd, target)
				}
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
		if t.Failed() {
			t.Log(h.log.String())
		}
	})
	return h
}

func openDescriptors(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	open := map[string]string{}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			open[e.Name()] = target
		}
	}
	return open
}

func (h *host) spec(plugin string) pluginhost.Spec {
	return pluginhost.Spec{Label: "box", Plugin: plugin}
}

func (h *host) configure(settings sdk.Settings) sdk.ConfigureRequest {
	return sdk.ConfigureRequest{Label: "box", BrokerID: "b1", StateDir: h.stateDir, Settings: settings}
}

// launch starts a plugin that is expected to start and stops it with the test.
func (h *host) launch(spec pluginhost.Spec) *pluginhost.Process {
	h.t.Helper()
	process, err := h.Launch(h.t.Context(), spec)
	assert.NilError(h.t, err)
	h.t.Cleanup(func() { process.Stop(within(h.t, time.Minute)) })
	return process
}

// configured is launch and Configure.
func (h *host) configured(spec pluginhost.Spec, settings sdk.Settings) *pluginhost.Process {
	h.t.Helper()
	process := h.launch(spec)
	assert.NilError(h.t, process.Provider().Configure(h.t.Context(), h.configure(settings)))
	return process
}

// within returns a context with a deadline that works during cleanup, too.
func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	t.Cleanup(cancel)
	return ctx
}

// act overrides what calls of the running mock do.
func (h *host) act(actions map[string]any) {
	h.t.Helper()
	text, err := json.Marshal(actions)
	assert.NilError(h.t, err)
	path := filepath.Join(h.stateDir, "actions.json")
	assert.NilError(h.t, os.WriteFile(path+".new", text, 0o600))
	assert.NilError(h.t, os.Rename(path+".new", path))
}

// instance creates one to execute in.
func instance(t *testing.T, p sdk.Provider) string {
	t.Helper()
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "mock", Labels: map[string]string{sdk.LabelTenant: "acme"}})
	assert.NilError(t, err)
	return made.ID
}

// execute runs a mock action.
func execute(ctx context.Context, p sdk.Provider, id, action string) (sdk.ExecuteResult, *collected, error) {
	out := &collected{}
	result, err := p.Execute(ctx, sdk.ExecuteRequest{
		InstanceID: id, ExecutionID: "e1", Language: "mock", Code: action,
		Timeout: 2 * time.Minute, OutputLimit: 1 << 20,
	}, out)
	return result, out, err
}

type collected struct{ stdout, stderr bytes.Buffer }

func (c *collected) Stdout(p []byte) error       { c.stdout.Write(p); return nil }
func (c *collected) Stderr(p []byte) error       { c.stderr.Write(p); return nil }
func (c *collected) Artifact(sdk.Artifact) error { return nil }

// logBuffer is the broker's log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// entries returns the log's entries that have all these values.
func (b *logBuffer) entries(want map[string]any) []map[string]any {
	var found []map[string]any
	for line := range strings.Lines(b.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		matches := true
		for key, value := range want {
			matches = matches && entry[key] == value
		}
		if matches {
			found = append(found, entry)
		}
	}
	return found
}

func (b *logBuffer) has(want map[string]any) func(poll.LogT) poll.Result {
	return func(poll.LogT) poll.Result {
		if len(b.entries(want)) > 0 {
			return poll.Success()
		}
		return poll.Continue("no entry with %v", want)
	}
}
