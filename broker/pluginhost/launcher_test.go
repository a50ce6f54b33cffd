package pluginhost_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// badStarts are the mock's start modes that must fail, and what callers read.
func badStarts() map[string]string {
	const early = "the plugin printed something else before its handshake; nothing may go to its standard output before it serves"
	return map[string]string{
		"garbage":     early,
		"flood":       early,
		"exit":        "the plugin exited with status 3 before its handshake",
		"silent":      `the plugin "mock_silent" did not answer within 1s`,
		"mute":        `the plugin "mock_mute" did not answer within 1s`,
		"oldprotocol": "the plugin speaks protocol version 7, this broker version 1; rebuild the plugin with a matching SDK",
		"oldcore":     "the plugin speaks version 9 of the go-plugin handshake, this broker version 1",
		"netrpc":      "the plugin does not speak gRPC",
		"tcp":         `the plugin listens on "tcp"; only a unix socket is accepted`,
		"elsewhere":   "the plugin named a socket outside the directory that it was given",
		"nosocket":    "the plugin named a socket that does not exist",
		"badschema":   `the plugin could not describe itself: the plugin's description is not acceptable: field name "env" is reserved for the broker`,
		"badname":     `the plugin could not describe itself: the plugin's description is not acceptable: name "../mock" is not of the form ^[a-z][a-z0-9_]{0,62}$`,
		"dies":        "the plugin exited with status 5 before it had described itself",
		"panics":      "the plugin could not describe itself: the provider panicked in /sandboxbroker.provider.v1.ProviderService/Describe; its log has the stack",
	}
}

func TestLaunchSaysWhyAPluginDoesNotStart(t *testing.T) {
	for mode, message := range badStarts() {
		t.Run(mode, func(t *testing.T) {
			h := newHost(t, func(o *pluginhost.LauncherOptions) {
				if mode == "silent" || mode == "mute" {
					o.StartTimeout = time.Second
				}
			})
			_, err := h.Launch(t.Context(), h.spec("mock_"+mode))
			assertPublic(t, err, sdk.CodeNotInitialized, `provider "box": `+message)
		})
	}
}

// assertPublic checks what a caller would read.
func assertPublic(t *testing.T, err error, code sdk.Code, message string) {
	t.Helper()
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok, "no code in %v", err)
	assert.Equal(t, e.Code, code)
	assert.Equal(t, e.Message, message)
}

func TestLaunchKeepsLastWordsForTheLogOnly(t *testing.T) {
	h := newHost(t)
	_, err := h.Launch(t.Context(), h.spec("mock_exit"))
	launch, ok := errors.AsType[*pluginhost.LaunchError](err)
	assert.Assert(t, ok)
	assert.Equal(t, launch.Stderr, "mock: cannot find my configuration")
	assert.Assert(t, !strings.Contains(err.Error(), "cannot find"))

	// Who starts a plugin by hand may see them.
	shown := pluginhost.WithLastWords(err)
	assert.Error(t, shown, err.Error()+"; the last that it wrote to standard error:\n  mock: cannot find my configuration")
	assert.Equal(t, pluginhost.LastWord(shown), "mock: cannot find my configuration")
	assert.Equal(t, sdk.CodeOf(shown), sdk.CodeNotInitialized)
	assert.Equal(t, pluginhost.LastWord(err), "")
	assert.ErrorIs(t, pluginhost.WithLastWords(context.Canceled), context.Canceled)
}

func TestLastWordsAreBoundedAndHarmless(t *testing.T) {
	stderr := strings.Repeat("early\n", 100) + strings.Repeat("x", 1000) + "\n\ttab\u202e\n\nend"
	text := pluginhost.WithLastWords(&pluginhost.LaunchError{Public: &sdk.Error{Code: sdk.CodeNotInitialized, Message: "m"}, Stderr: stderr}).Error()
	lines := strings.Split(text, "\n")
	assert.Equal(t, len(lines), 1+10)
	assert.Equal(t, lines[10], "  end")
	assert.Equal(t, lines[9], `   tab\u202e`)
	assert.Equal(t, lines[8], "  "+strings.Repeat("x", 400)+"…")
}

func TestLaunchRefusesFilesThatItCannotTrust(t *testing.T) {
	place := func(t *testing.T, dirMode, mode os.FileMode, content string) string {
		dir := t.TempDir()
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "box"), []byte(content), 0o600))
		assert.NilError(t, os.Chmod(filepath.Join(dir, "box"), mode))
		assert.NilError(t, os.Chmod(dir, dirMode))
		return dir
	}
	for name, test := range map[string]struct {
		dirMode, mode   os.FileMode
		content         string
		plugin, sha256  string
		message, detail string
	}{
		"a plugin that is missing":               {0o700, 0o700, "x", "none", "", `there is no plugin "none" in the plugin directory`, "none"},
		"a name that leaves the directory":       {0o700, 0o700, "x", "../box", "", `the plugin name "../box" is not a file name`, ""},
		"a file that is not executable":          {0o700, 0o600, "xx", "box", "", `the plugin "box" is not executable`, "chmod +x"},
		"a file that everybody may write":        {0o700, 0o702, "xx", "box", "", `the plugin "box" may be changed by others`, "everybody may write"},
		"a directory that everybody may write":   {0o777, 0o700, "xx", "box", "", `the plugin "box" lies in a directory that others may change`, "everybody may write"},
		"an empty file":                          {0o700, 0o700, "", "box", "", `the plugin "box" is empty or cannot be read`, ""},
		"a file that is no program":              {0o700, 0o700, "no program at all", "box", "", "the plugin cannot be executed", "exec format error"},
		"a pin that does not fit":                {0o700, 0o700, "xx", "box", strings.Repeat("0", 64), `the plugin "box" does not have the pinned sha256`, "has 5dde896887f6754c9b15bfe3a441ae4806df2fde94001311e08bf110622e0bbe"},
		"a pin that is no checksum":              {0o700, 0o700, "xx", "box", "beef", `the sha256 of plugin "box" is not 64 hexadecimal digits`, ""},
		"a pinned script":                        {0o700, 0o700, "#!/bin/sh\n", "box", strings.Repeat("0", 64), `the plugin "box" is a script, and sha256 can pin programs only`, ""},
		"a script whose interpreter is not here": {0o700, 0o700, "#!/no/such/interpreter\n", "box", "", "the plugin cannot be executed", "no such file"},
		"a script that is no plugin":             {0o700, 0o700, "#!/bin/sh\necho hello\n", "box", "", "the plugin printed something else before its handshake", `hello\n`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t, test.dirMode, test.mode, test.content)
			h := newHost(t, func(o *pluginhost.LauncherOptions) { o.PluginDir = dir })
			_, err := h.Launch(t.Context(), pluginhost.Spec{Label: "box", Plugin: test.plugin, SHA256: test.sha256})
			launch, ok := errors.AsType[*pluginhost.LaunchError](err)
			assert.Assert(t, ok, "%v", err)
			assert.Equal(t, launch.Public.Code, sdk.CodeNotInitialized)
			assert.Assert(t, is.Contains(launch.Public.Message, test.message))
			assert.Assert(t, is.Contains(launch.Detail, test.detail))
			assert.Assert(t, !strings.Contains(launch.Public.Message, dir), "callers read a path")
		})
	}
}

func TestLaunchRunsAPinnedProgramAndASymbolicLink(t *testing.T) {
	h := newHost(t)
	file, err := os.Open(filepath.Join(plugins, "mock"))
	assert.NilError(t, err)
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	assert.NilError(t, err)
	assert.NilError(t, os.Symlink("mock", filepath.Join(plugins, "linked")))
	t.Cleanup(func() { assert.Check(t, os.Remove(filepath.Join(plugins, "linked"))) })

	process := h.launch(pluginhost.Spec{Label: "box", Plugin: "linked", SHA256: hex.EncodeToString(hash.Sum(nil))})
	assert.Equal(t, process.Provider().Describe().Name, "mock")
}

// top and ps show which plugin a process is.
func TestAProcessIsCalledAsItsPluginIs(t *testing.T) {
	h := newHost(t)
	process := h.launch(h.spec("mock"))
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", process.PID()))
	assert.NilError(t, err)
	assert.Equal(t, string(name), "mock\n")
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process.PID()))
	assert.NilError(t, err)
	assert.Equal(t, string(line), filepath.Join(plugins, "mock")+"\x00")
}

func TestLaunchGivesUpWithItsCaller(t *testing.T) {
	h := newHost(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := h.Launch(ctx, h.spec("mock_silent"))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestLaunchPassesOnWhatWasListedAndNothingElse(t *testing.T) {
	t.Setenv("MOCK_LISTED", "yes")
	t.Setenv("MOCK_SECRET_OF_THE_BROKER", "no")
	t.Setenv(wire.EnvLogLevel, "trace")
	t.Setenv("PLUGIN_UNIX_SOCKET_DIR", "/nowhere")
	h := newHost(t, func(o *pluginhost.LauncherOptions) { o.LogLevel = "warn" })
	process := h.configured(pluginhost.Spec{
		Label: "box", Plugin: "mock", Env: []string{"MOCK_LISTED", "MOCK_ABSENT", "PLUGIN_UNIX_SOCKET_DIR"},
	}, nil)
	result, _, err := execute(t.Context(), process.Provider(), instance(t, process.Provider()), `{"echo": true}`)
	assert.NilError(t, err)
	got := environmentOf(t, result)
	assert.Equal(t, got["MOCK_LISTED"], "yes")
	assert.Equal(t, got[wire.EnvLogLevel], "warn")
	assert.Equal(t, got["PATH"], os.Getenv("PATH"))
	for name := range got {
		assert.Check(t, !strings.HasPrefix(name, "PLUGIN_") && !strings.HasPrefix(name, "MOCK_SECRET") && name != "SANDBOX_BROKER_PLUGIN", name)
	}
}

func TestNewLauncherRefusesAWrongLogLevel(t *testing.T) {
	h := newHost(t)
	_, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{Logger: h.logger, LogLevel: "warning", Watchdog: "/proc/self/exe"})
	assert.Error(t, err, `log level "warning" is none of trace, debug, info, warn, error and off`)
}
