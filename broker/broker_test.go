package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// pluginDir holds the mock provider, a real plugin in a real process.
var pluginDir string

func TestMain(m *testing.M) {
	watchdog.Main()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "broker-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "mock"), "../e2e/mockprovider")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the mock provider: %v\n%s", err, out)
		return 1
	}
	pluginDir = dir
	code := m.Run()
	if err := goleak.Find(
		// See package api for these two.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// configuration is a file with these provider blocks and two tenants.
func configuration(t *testing.T, state, providers string) *config.Config {
	t.Helper()
	text := fmt.Sprintf(`
listen     = "127.0.0.1:0"
state      = %q
plugin_dir = %q
limits { shutdown_timeout = "20s" }
%s
tenant "demo" { token_sha256 = ["7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c"] }
`, state, pluginDir, providers)
	cfg, diags := config.Parse(filepath.Join(t.TempDir(), "sandbox.hcl"), []byte(text))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	return cfg
}

// running is a broker that serves.
type running struct {
	t       *testing.T
	url     string
	metrics string        // the URL of the metrics, if the configuration wants them
	log     *bytes.Buffer // to be read when it has stopped
	client  *http.Client
	cancel  context.CancelFunc
	stopped chan error
}

func serve(t *testing.T, cfg *config.Config, options ...func(*broker.Options)) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &running{
		t: t, log: &bytes.Buffer{}, cancel: cancel, stopped: make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{}, Timeout: 4 * time.Minute},
	}
	ready, metrics, runtimeDir := make(chan net.Addr, 1), make(chan net.Addr, 1), shortDir(t)
	go func() {
		opts := broker.Options{
			Watchdog:   "/proc/self/exe",
			Logger:     hclog.New(&hclog.LoggerOptions{Output: b.log, Level: hclog.Debug}),
			RuntimeDir: runtimeDir,
			Ready:      func(address net.Addr) { ready <- address },

			MetricsReady: func(address net.Addr) { metrics <- address },
		}
		for _, option := range options {
			option(&opts)
		}
		b.stopped <- broker.Run(ctx, cfg, opts)
	}()
	t.Cleanup(b.stop)
	select {
	case address := <-ready:
		b.url = "http://" + address.String()
		if cfg.Metrics.Listen != "" {
			b.metrics = "http://" + (<-metrics).String() + "/metrics"
		}
	case err := <-b.stopped:
		b.stopped <- err
		t.Fatalf("the broker did not start: %v", err)
	}
	return b
}

// shortDir is for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sb") //nolint:usetesting // t.TempDir makes long paths
	assert.NilError(t, err)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		assert.Check(t, err)
		assert.Check(t, cmp.Len(left, 0), "the runtime directory is not empty")
		assert.Check(t, os.RemoveAll(dir))
	})
	return dir
}

// silent is a logger with a level, which the null logger has not.
func silent() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: io.Discard})
}

// stop ends the broker in order, once.
func (b *running) stop() {
	b.t.Helper()
	b.cancel()
	b.client.CloseIdleConnections()
	err := <-b.stopped
	b.stopped <- err
	assert.Check(b.t, err)
}

func (b *running) request(method, path, body string) *http.Request {
	b.t.Helper()
	req, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	assert.NilError(b.t, err)
	req.Header.Set("Authorization", "Bearer demo-token")
	req.Header.Set("Content-Type", "application/json")
	return req
}

func (b *running) do(method, path, body string) (int, string) {
	b.t.Helper()
	resp, err := b.client.Do(b.request(method, path, body))
	assert.NilError(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(b.t, err)
	return resp.StatusCode, string(text)
}

// execute runs an action of the mock provider.
func (b *running) execute(code string) (int, string) {
	b.t.Helper()
	return b.do(http.MethodPost, "/api/v1/execute", action(b.t, code))
}

// action is the body of a request to execute it.
func action(t *testing.T, code string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"language": "mock", "code": code})
	assert.NilError(t, err)
	return string(body)
}

func TestCodePostedToTheAPIReachesThePlugin(t *testing.T) {
	b := serve(t, configuration(t, scratch.Dir(t), `provider "mock" {}`))
	status, text := b.execute(`{"stdout": "hello\n", "exit_code": 3}`)
	assert.Equal(t, status, http.StatusOK, text)
	var e client.Execution
	assert.NilError(t, json.Unmarshal([]byte(text), &e))
	assert.Equal(t, e.Stdout, "hello\n")
	assert.Equal(t, e.ExitCode, 3)
	assert.Equal(t, e.Provider, "mock")

	status, text = b.do(http.MethodGet, "/readyz", "")
	assert.Equal(t, status, http.StatusOK, text)
	status, text = b.do(http.MethodGet, "/api/v1/providers", "")
	assert.Equal(t, status, http.StatusOK, text)
	assert.Check(t, cmp.Contains(text, `"state":"ready"`))
}

func TestMetricsAreShownWhereTheConfigurationSays(t *testing.T) {
	b := serve(t, configuration(t, scratch.Dir(t), "metrics { listen = \"127.0.0.1:0\" }\nprovider \"mock\" {}"))
	status, text := b.execute(`{"stdout": "hello"}`)
	assert.Equal(t, status, http.StatusOK, text)
	status, _ = b.do(http.MethodGet, "/metrics", "")
	assert.Equal(t, status, http.StatusNotFound, "not among the routes for tenants")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		resp, err := b.client.Get(b.metrics)
		assert.NilError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		assert.Equal(t, resp.StatusCode, http.StatusOK)
		for _, line := range []string{
			`sandbox_broker_requests_total{code="",method="POST",route="/api/v1/execute",status="200"} 1`,
			`sandbox_broker_requests_total{code="SB013",method="",route="",status="404"} 1`,
			`sandbox_broker_request_duration_seconds_count{route="/api/v1/execute"} 1`,
			`sandbox_broker_provider_ready{provider="mock"} 1`,
			`sandbox_broker_instances{provider="mock",state="unclear"} 0`,
			`sandbox_provider_mock_instances{provider="mock"} 0`, // from the first health probe on
		} {
			if !strings.Contains("\n"+string(text), "\n"+line+"\n") {
				return poll.Continue("%s is not in\n%s", line, text)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	_, text = b.do(http.MethodGet, "/api/v1/providers", "")
	assert.Check(t, !strings.Contains(text, "Instances that there are"), "metrics are no tenant's business")
}

func TestAPluginThatDiesIsReplaced(t *testing.T) {
	b := serve(t, configuration(t, scratch.Dir(t), `provider "mock" {}`))
	status, text := b.execute(`{"crash": "before", "crash_with": "kill"}`)
	assert.Equal(t, status, http.StatusServiceUnavailable, text)
	assert.Check(t, cmp.Contains(text, `"code":"SB009"`))
	assert.Check(t, cmp.Contains(text, `"provider":"mock"`))
	status, text = b.execute(`{"stdout": "back"}`)
	assert.Equal(t, status, http.StatusOK, text)
}

func TestInstancesOfAnEarlierRunAreDestroyedAtTheStart(t *testing.T) {
	state := scratch.Dir(t)
	own := filepath.Join(state, "providers", "mock", "1")
	first := serve(t, configuration(t, state, `provider "mock" { persist = true }`))
	status, text := first.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s1"}`)
	assert.Equal(t, status, http.StatusCreated, text)
	left, err := os.ReadFile(filepath.Join(own, "instances.json"))
	assert.NilError(t, err)
	first.stop()
	// As a kill -9 would have left it.
	assert.NilError(t, os.WriteFile(filepath.Join(own, "instances.json"), left, 0o600))

	second := serve(t, configuration(t, state, `provider "mock" { persist = true }`))
	second.stop()
	assert.Check(t, cmp.Contains(second.log.String(), "reconciled: provider=mock lost=0 orphans=1"))
}

func TestAStopLetsAnExecutionFinish(t *testing.T) {
	b := serve(t, configuration(t, scratch.Dir(t), `provider "mock" {}`))
	req := b.request(http.MethodPost, "/api/v1/execute", action(t, `{"delay": "1s", "stdout": "finished"}`))
	type outcome struct {
		resp *http.Response
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		resp, err := b.client.Do(req) //nolint:bodyclose // it is closed below
		done <- outcome{resp, err}
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if _, text := b.do(http.MethodGet, "/api/v1/instances", ""); strings.Contains(text, `"executions":1`) {
			return poll.Success()
		}
		return poll.Continue("the execution has not begun")
	}, poll.WithTimeout(2*time.Minute))
	b.stop()
	got := <-done
	assert.NilError(t, got.err)
	text, err := io.ReadAll(got.resp.Body)
	assert.NilError(t, err)
	assert.NilError(t, got.resp.Body.Close())
	assert.Equal(t, got.resp.StatusCode, http.StatusOK)
	assert.Check(t, cmp.Contains(string(text), "finished"))
	assert.Check(t, cmp.Contains(b.log.String(), "stopped"))
}

func TestABrokerThatCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer taken.Close()
	for name, test := range map[string]struct {
		providers string
		change    func(*config.Config)
		wants     []string
		diags     bool
	}{
		"settings of two providers that the schema refuses, both told": {
			"provider \"a\" {\n plugin = \"mock\"\n persist = \"maybe\"\n}\nprovider \"b\" {\n plugin = \"mock\"\n colour = \"red\"\n}\nproviders { active = \"a\" }",
			nil,
			[]string{"persist", "colour"},
			true,
		},
		"a plugin that is not there": {`provider "nowhere" {}`, nil, []string{"nowhere"}, true},
		"a setting that the plugin itself refuses": {
			`provider "mock" { on_configure = "{\"fail\": \"SB002\", \"field\": \"secret\", \"message\": \"no good\"}" }`,
			nil,
			[]string{"no good"},
			true,
		},
		"an address that is taken":             {`provider "mock" {}`, func(c *config.Config) { c.Listen = taken.Addr().String() }, []string{"another program listens on "}, false},
		"an address for metrics that is taken": {`provider "mock" {}`, func(c *config.Config) { c.Metrics.Listen = taken.Addr().String() }, []string{"another program listens on "}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configuration(t, scratch.Dir(t), test.providers)
			if test.change != nil {
				test.change(cfg)
			}
			err := broker.Run(t.Context(), cfg, broker.Options{Logger: silent(), RuntimeDir: shortDir(t), Watchdog: "/proc/self/exe"})
			assert.Assert(t, err != nil)
			text := err.Error()
			diags, ok := err.(config.Diagnostics) //nolint:errorlint // it is not wrapped
			assert.Equal(t, ok, test.diags, "%T %v", err, err)
			if ok {
				var b strings.Builder
				assert.NilError(t, diags.Write(&b, config.Style{}))
				text = b.String()
			}
			for _, want := range test.wants {
				assert.Check(t, cmp.Contains(text, want))
			}
		})
	}
}

func TestAProviderThatIsDownDoesNotKeepTheBrokerFromServing(t *testing.T) {
	b := serve(t, configuration(t, scratch.Dir(t), `provider "mock" { on_configure = "{\"fail\": \"SB003\", \"message\": \"no route\"}" }`))
	status, text := b.do(http.MethodGet, "/healthz", "")
	assert.Equal(t, status, http.StatusOK, text)
	// On a machine that is slow enough the first start of the plugin takes too long, and
	// that is what is told until a later one gets so far.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		status, text := b.do(http.MethodGet, "/readyz", "")
		assert.Equal(t, status, http.StatusServiceUnavailable, text)
		return poll.Compare(cmp.Contains(text, "no route"))
	}, poll.WithTimeout(2*time.Minute))
}

func TestInspectStartsAPluginAndStopsIt(t *testing.T) {
	cfg := configuration(t, scratch.Dir(t), `provider "mock" {}`)
	d, diags, err := broker.Inspect(t.Context(), cfg, cfg.Providers[0], broker.Options{Logger: silent(), RuntimeDir: shortDir(t), Watchdog: "/proc/self/exe"})
	assert.NilError(t, err)
	assert.Equal(t, len(diags), 0)
	_, ok := d.Schema.Field("persist")
	assert.Assert(t, ok)
}
