package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/broker/volume"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp keeps one goroutine per process that writes the Date header.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// A worker pool that was stopped sleeps out its last 10 s.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

const maxBody = 64 << 10

// fixture is the API on a real TCP listener, over a real instance service and a
// provider that runs in this process.
type fixture struct {
	t        *testing.T
	address  string
	provider *instancetest.Provider
	second   *instancetest.Provider
	service  *instance.Service
	runs     *executions.Keeper
	server   *api.Server
	log      *logBuffer
	client   *http.Client
	catalog  *fallbackCatalog // of both
	// newServer is api.NewServer unless an option sets another.
	newServer func(api.Options) (*api.Server, error)
}

func start(t *testing.T, options ...func(*api.Options, *fixture)) *fixture {
	t.Helper()
	f := &fixture{
		t:        t,
		provider: &instancetest.Provider{Name: "first"},
		second:   &instancetest.Provider{Name: "second"},
		log:      &logBuffer{},
		client:   &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute},

		newServer: api.NewServer,
	}
	f.catalog = &fallbackCatalog{Catalog: instancetest.Catalog{f.provider, f.second}}
	logger := hclog.New(&hclog.LoggerOptions{Output: f.log, Level: hclog.Debug})
	f.service = instance.NewService(instance.Options{
		Catalog: f.catalog,
		Limits:  instancetest.Limits(),
		Logger:  logger,
	})
	state, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	assert.NilError(t, err)
	f.runs, err = executions.Open(executions.Options{
		Store: state, Logger: logger, Limits: executions.Limits{LogBytes: 32 << 20, AllBytes: 64 << 20, Time: time.Minute},
	})
	assert.NilError(t, err)
	opts := api.Options{
		Instances:  f.service,
		Executions: f.runs,
		Tenants: tenant.NewDirectory([]tenant.Credentials{
			{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}},
			{Tenant: tenant.Tenant{Name: "umbrella"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("umbrella-token"))}},
			{Tenant: tenant.Tenant{Name: "limited", Providers: []string{"second"}}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("limited-token"))}},
		}),
		Logger: logger,
		Bounds: api.Bounds{MaxBody: maxBody, RequestTimeout: time.Minute},
	}
	volumes, err := volume.NewService(volume.Options{Catalog: f.catalog, Instances: instance.VolumesOf(f.service), Journal: noVolumes{}, Logger: logger})
	assert.NilError(t, err)
	opts.Volumes = volumes
	for _, option := range options {
		option(&opts, f)
	}
	server, err := f.newServer(opts)
	assert.NilError(t, err)
	f.server = server
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	f.address = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		f.service.Shutdown(ctx)
		f.runs.Close()
		assert.Check(t, state.Close())
		assert.Check(t, server.Shutdown(ctx))
		_ = listener.Close() // for a server that never came to serve
		assert.Check(t, <-served)
	})
	// The server is there when it answers; before that Shutdown would miss it.
	f.do(http.MethodGet, "/healthz", "", "").wants(http.StatusOK)
	return f
}

// answer is a response that was read.
type answer struct {
	*http.Response
	t    *testing.T
	text string
}

// do sends a request as tenant acme; a body is JSON.
func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	req := f.request(f.t.Context(), method, path, body, headers...)
	resp, err := f.client.Do(req)
	assert.NilError(f.t, err)
	return read(f.t, resp)
}

func (f *fixture) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+f.address+path, strings.NewReader(body))
	assert.NilError(f.t, err)
	req.Header.Set("Authorization", "Bearer acme-token")
	req.Header.Set("X-Request-Id", "test-request")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		if name, value, ok := strings.Cut(header, ": "); ok {
			req.Header.Set(name, value)
		}
	}
	return req
}

func read(t *testing.T, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return answer{Response: resp, t: t, text: string(text)}
}

// wants asserts the status and returns the answer.
func (a answer) wants(status int) answer {
	a.t.Helper()
	assert.Equal(a.t, a.StatusCode, status, a.text)
	return a
}

// decode reads the JSON of the answer.
func (a answer) decode(into any) {
	a.t.Helper()
	assert.NilError(a.t, json.Unmarshal([]byte(a.text), into), a.text)
}

// problem asserts that the answer is a well-made problem and returns it.
func (a answer) problem(status int, code string) client.Problem {
	a.t.Helper()
	a.wants(status)
	assert.Equal(a.t, a.Header.Get("Content-Type"), "application/problem+json")
	var p client.Problem
	a.decode(&p)
	assert.Equal(a.t, p.Code, code, a.text)
	assert.Equal(a.t, p.Status, status)
	assert.Equal(a.t, p.RequestID, a.Header.Get("X-Request-Id"))
	assert.Assert(a.t, p.Title != "" && p.Detail != "", a.text)
	return p
}

// indented makes the answer fit for a golden file.
func (a answer) indented() string {
	a.t.Helper()
	var b bytes.Buffer
	assert.NilError(a.t, json.Indent(&b, []byte(a.text), "", "  "))
	return b.String() + "\n"
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// noVolumes is a journal that has none.
type noVolumes struct{}

func (noVolumes) Load() ([]volume.Record, error)             { return nil, nil }
func (noVolumes) Write(context.Context, volume.Record) error { return nil }
func (noVolumes) Forget(context.Context, string) error       { return nil }
