package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// plugins builds the mock provider once and returns its directory, which
// TestMain removes.
var plugins = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "build", "-o", filepath.Join(pluginsDir, "mock"), "../../e2e/mockprovider").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the mock provider: %w\n%s", err, out)
	}
	return pluginsDir, nil
})

var pluginsDir string

func TestMain(m *testing.M) {
	watchdog.Main()
	var err error
	if pluginsDir, err = os.MkdirTemp("", "sandbox-broker-plugins-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(pluginsDir)
	os.Exit(code)
}

// screen is a terminal's output that may be read while it is written.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// serving runs `serve` on a file and returns what it prints once it is ready.
func serving(t *testing.T, tenant string) (banner string, stop func() (code int, log string)) {
	t.Helper()
	plugins, err := plugins()
	assert.NilError(t, err)
	dir := fs.NewDir(t, "serve", fs.WithFile("sandbox.hcl", fmt.Sprintf(
		"listen = \"127.0.0.1:0\"\nplugin_dir = %q\nprovider \"mock\" {}\n%s", plugins, tenant)))
	ctx, cancel := context.WithCancel(context.Background())
	var out, log screen
	done := make(chan int, 1)
	go func() {
		term := &terminal{in: strings.NewReader(""), out: &out, err: &log, style: config.Style{Width: 100}}
		done <- run(ctx, []string{"serve", "--config", dir.Join("sandbox.hcl")}, term, nil)
	}()
	stop = sync.OnceValues(func() (int, string) {
		cancel()
		return <-done, log.String()
	})
	t.Cleanup(func() { stop() })
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if strings.Contains(out.String(), "curl") {
			return poll.Success()
		}
		return poll.Continue("no banner yet:\n%s%s", out.String(), log.String())
	}, poll.WithTimeout(2*time.Minute))
	return out.String(), stop
}

const demo = `tenant "demo" { token_sha256 = ["7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c"] }`

func TestTheLineOfTheBannerWorksWhenPasted(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	banner, stop := serving(t, demo)
	assert.Check(t, cmp.Contains(banner, "Replace it: sandbox-broker token"))
	line := regexp.MustCompile(`(?m)^  (curl .*)$`).FindStringSubmatch(banner)
	assert.Assert(t, line != nil, banner)
	out, err := exec.Command("sh", "-c", line[1]).CombinedOutput()
	assert.NilError(t, err)
	assert.Check(t, cmp.Contains(string(out), `"status":"succeeded"`))
	code, log := stop()
	assert.Equal(t, code, 0, log)
}

func TestExecReachesWhatServeServes(t *testing.T) {
	banner, _ := serving(t, demo)
	url := regexp.MustCompile(`serves on (\S+)`).FindStringSubmatch(banner)
	assert.Assert(t, url != nil, banner)
	got := runExec(t, `mock: {"stdout": "hello\n", "exit_code": 3}`, "-", "--url", url[1])
	assert.Equal(t, got.out, "hello\n")
	assert.Equal(t, got.code, 3, got.err)
}

func TestTheBannerShowsNoTokenThatItDoesNotKnow(t *testing.T) {
	banner, _ := serving(t, `tenant "acme" { token_sha256 = ["`+strings.Repeat("ab", 32)+`"] }`)
	assert.Check(t, cmp.Contains(banner, `"Authorization: Bearer $SANDBOX_BROKER_TOKEN"`))
	assert.Check(t, !strings.Contains(banner, "demo-token"))
}

func TestServeRefusesABrokenFile(t *testing.T) {
	plugins, err := plugins()
	assert.NilError(t, err)
	for name, test := range map[string]struct {
		src   string
		wants []string
	}{
		"mistakes that the file alone shows": {
			"listen = \"nowhere\"\ncolour = 1\nprovider \"mock\" {}\n" + demo,
			[]string{"sandbox.hcl:1", "sandbox.hcl:2", "2 mistakes; the broker does not start with them"},
		},
		"a mistake that only the plugin's schema shows": {
			fmt.Sprintf("listen = \"127.0.0.1:0\"\nplugin_dir = %q\nprovider \"mock\" {\n  persist = \"maybe\"\n}\n", plugins) + demo,
			[]string{"sandbox.hcl:4", "1 mistake; the broker does not start with them"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fs.NewDir(t, "serve", fs.WithFile("sandbox.hcl", test.src))
			got := runWith(t, nil, "serve", "-c", dir.Join("sandbox.hcl"))
			assert.Equal(t, got.code, 1)
			assert.Equal(t, got.out, "")
			for _, want := range test.wants {
				assert.Check(t, cmp.Contains(got.err, want))
			}
		})
	}
}

func TestServeThatCannotStartSaysWhyInOneLine(t *testing.T) {
	plugins, err := plugins()
	assert.NilError(t, err)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer taken.Close()
	for name, test := range map[string]struct{ listen, state, wants string }{
		"an address that is taken":            {taken.Addr().String(), "./state", "another program listens on " + taken.Addr().String()},
		"an address of another machine":       {"192.0.2.1:1", "./state", "cannot listen on 192.0.2.1:1: "},
		"a state directory that is in use":    {"127.0.0.1:0", "./a state in use", "another broker uses the state directory "},
		"a state directory that cannot be":    {"127.0.0.1:0", "/proc/state", "state directory: mkdir /proc/state: "},
		"a state directory of something else": {"127.0.0.1:0", "./thesis", "choose a directory for the broker alone"},
		"a state directory that is a file":    {"127.0.0.1:0", "./sandbox.hcl", "state directory: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fs.NewDir(t, "serve", fs.WithFile("sandbox.hcl", fmt.Sprintf(
				"listen = %q\nstate = %q\nplugin_dir = %q\nprovider \"mock\" {}\n%s", test.listen, test.state, plugins, demo)),
				fs.WithDir("thesis", fs.WithMode(0o755), fs.WithFile("chapter1", "")),
				fs.WithDir("a state in use", fs.WithMode(0o700), fs.WithFile("lock", "", fs.WithMode(0o600))))
			lock, err := os.Open(dir.Join("a state in use", "lock"))
			assert.NilError(t, err)
			defer lock.Close()
			assert.NilError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))

			got := runWith(t, nil, "serve", "-c", dir.Join("sandbox.hcl"))
			assert.Equal(t, got.code, 1)
			assert.Equal(t, got.out, "")
			last := got.err[strings.LastIndex(strings.TrimSpace(got.err), "\n")+1:]
			assert.Check(t, strings.HasPrefix(last, "sandbox-broker: "), got.err)
			assert.Check(t, cmp.Contains(last, test.wants))
		})
	}
}

func TestServeRefusesAPluginThatEverybodyMayReplace(t *testing.T) {
	dir := fs.NewDir(t, "serve", fs.WithDir("plugins", fs.WithFile("mock", "#!/bin/sh\n", fs.WithMode(0o755))),
		fs.WithFile("sandbox.hcl", "listen = \"127.0.0.1:0\"\nplugin_dir = \"./plugins\"\nprovider \"mock\" {}\n"+demo))
	assert.NilError(t, os.Chmod(dir.Join("plugins"), 0o777))
	got := runWith(t, nil, "serve", "-c", dir.Join("sandbox.hcl"))
	assert.Equal(t, got.code, 1)
	assert.Check(t, cmp.Contains(got.err, "everybody may write it (chmod o-w)"))
	assert.Equal(t, strings.Count(got.err, "everybody may write it"), 1, got.err)
}

func TestCheckAsksTheRealPlugin(t *testing.T) {
	plugins, err := plugins()
	assert.NilError(t, err)
	dir := fs.NewDir(t, "check", fs.WithFile("sandbox.hcl", fmt.Sprintf("plugin_dir = %q\nprovider \"mock\" {\n  persist = \"maybe\"\n}\n%s", plugins, demo)))
	got := runWith(t, describePlugin, "check", dir.Join("sandbox.hcl"))
	assert.Equal(t, got.code, 1)
	assert.Check(t, cmp.Contains(got.err, "persist"))
}
