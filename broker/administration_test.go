package broker_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

// administered is a broker that follows a file and has an administrator.
type administered struct {
	t    *testing.T
	url  string
	file string
	// processes has a directory for each process of the provider.
	processes string
	// loads counts how often the broker has read the files since it was started.
	loads atomic.Int32
	// stop ends the broker and returns what it returned.
	stop func() error
}

func startAdministered(t *testing.T, more ...string) *administered {
	t.Helper()
	token := sha256.Sum256([]byte("admin-token"))
	state := scratch.Dir(t)
	a := &administered{t: t, file: filepath.Join(t.TempDir(), "sandbox.hcl"), processes: filepath.Join(state, "providers", "mock")}
	text := fmt.Sprintf("listen = \"127.0.0.1:0\"\nstate = %q\nplugin_dir = %q\nadmin { token_sha256 = [%q] }\n", state, pluginDir, hex.EncodeToString(token[:])) +
		"tenant \"demo\" { token_sha256 = [\"7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c\"] }\n" +
		"provider \"mock\" {\n  persist = false\n}\n" + strings.Join(more, "\n")
	assert.NilError(t, os.WriteFile(a.file, []byte(text), 0o600))
	cfg, diags := config.Load(a.file)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended, runtimeDir := make(chan net.Addr, 1), make(chan error, 1), shortDir(t)
	go func() {
		ended <- broker.Run(ctx, cfg, broker.Options{
			DrainGrace: 500 * time.Millisecond,
			Watchdog:   "/proc/self/exe",
			Logger:     silent(), RuntimeDir: runtimeDir, Version: "v0",
			Load: func() (*config.Config, config.Diagnostics) {
				a.loads.Add(1)
				return config.Load(a.file)
			},
			Ready: func(address net.Addr) { ready <- address },
		})
	}()
	a.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { assert.Check(t, a.stop()) })
	select {
	case address := <-ready:
		a.url = "http://" + address.String()
	case err := <-ended:
		ended <- err
		t.Fatalf("the broker did not start: %v", err)
	}
	return a
}

// do sends a request as an administrator. It may be called from any goroutine.
func (a *administered) do(ctx context.Context, method, path string, body map[string]any) (status int, text string, err error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+"/api/admin/sandbox"+path, bytes.NewReader(encoded))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer admin-token")
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// Administrators, an editor and lookers-on, all at once. Whoever is told that a
// change is in force finds it there, and nobody is told of a bug.
func TestManyChangeTheConfigurationAtOnce(t *testing.T) {
	a := startAdministered(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 4 {
				status, text, err := a.do(t.Context(), http.MethodPost, "/config", map[string]any{"provider": "mock", "config": map[string]any{"bad_starts": 0, "secret": nil, "persist": (i+n)%2 == 0}})
				assert.Check(t, err)
				assert.Check(t, status == http.StatusOK || status == http.StatusConflict, "%d %s", status, text)
			}
		})
	}
	all.Go(func() {
		for range 3 {
			status, text, err := a.do(t.Context(), http.MethodPost, "/test", map[string]any{"provider": "mock"})
			assert.Check(t, err)
			// The file may change between its reading and its check.
			assert.Check(t, status == http.StatusOK || status == http.StatusConflict, "%d %s", status, text)
		}
	})
	all.Go(func() {
		for n := range 5 {
			text, err := os.ReadFile(a.file)
			assert.Check(t, err)
			assert.Check(t, os.WriteFile(a.file+".new", fmt.Appendf(text, "# %d\n", n), 0o600))
			assert.Check(t, os.Rename(a.file+".new", a.file))
			_, _, err = a.do(t.Context(), http.MethodPost, "/reload", map[string]any{"dry_run": n%2 == 0})
			assert.Check(t, err)
		}
	})
	all.Go(func() {
		for range 10 {
			for _, path := range []string{"/config", "/generations", "/status", "/providers"} {
				status, text, err := a.do(t.Context(), http.MethodGet, path, nil)
				assert.Check(t, err)
				assert.Check(t, status == http.StatusOK, "%d %s", status, text)
			}
		}
	})
	all.Wait()
	status, text, err := a.do(t.Context(), http.MethodPost, "/reload", map[string]any{})
	assert.NilError(t, err)
	assert.Equal(t, status, http.StatusOK, text)
	var shown struct {
		Data struct{ Mock struct{ Persist bool } }
		Meta struct{ Differs bool }
	}
	_, text, err = a.do(t.Context(), http.MethodGet, "/config", nil)
	assert.NilError(t, err)
	assert.NilError(t, json.Unmarshal([]byte(text), &shown))
	assert.Check(t, !shown.Meta.Differs, text)
	cfg, diags := config.Load(a.file)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.Equal(t, cfg.Provider("mock") != nil, true)
}

// A stop does not wait for a plugin that does not answer, and leaves nothing of it.
func TestAStopEndsChangesAndTrials(t *testing.T) {
	a := startAdministered(t)
	hang := map[string]any{"provider": "mock", "config": map[string]any{"on_configure": `{"hang":true}`}}
	var all sync.WaitGroup
	for _, path := range []string{"/test", "/config"} {
		all.Go(func() {
			status, text, err := a.do(context.Background(), http.MethodPost, path, hang)
			if err == nil { // else the broker was gone before it could answer
				assert.Check(t, status == http.StatusServiceUnavailable || status == http.StatusOK, "%d %s", status, text)
			}
		})
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		dirs, err := a.directories()
		assert.NilError(t, err)
		return poll.Compare(is.Len(dirs, 3))
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
	assert.NilError(t, a.stop()) // the plugin hangs for ever
	all.Wait()
	dirs, err := a.directories()
	assert.NilError(t, err)
	assert.Equal(t, len(dirs), 1)
}

// directories are those of the processes of the provider. The one that they have together
// has no number.
func (a *administered) directories() ([]string, error) {
	return filepath.Glob(filepath.Join(a.processes, "[0-9]*"))
}

// steer tells the process of a provider what to do at its calls.
func (a *administered) steer(label, actions string) {
	a.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(a.processes), label, "[0-9]*"))
	assert.NilError(a.t, err)
	assert.Equal(a.t, len(dirs), 1)
	path := filepath.Join(dirs[0], "actions.json")
	assert.NilError(a.t, os.WriteFile(path+".new", []byte(actions), 0o600))
	assert.NilError(a.t, os.Rename(path+".new", path))
}
