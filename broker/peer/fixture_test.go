package peer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/peer/peertest"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp keeps one goroutine per process that writes the Date header.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// A worker pool that was stopped sleeps out its last 10 s.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// box is a provider whose sandboxes have one directory of this machine as their /, where
// their commands run as they are.
type box struct {
	*instancetest.Provider
	programs frontdoortest.Programs
	commands *localcommands.Commands
	files    *localfiles.Files
	program  *httptest.Server // on each port

	mu      sync.Mutex
	origins []origin.Origin // of what was executed
	ended   chan error      // has why an execution that hangs ends
}

type served struct {
	underlying
	*localcommands.Commands
	*localfiles.Files
}

// underlying has what the others have not: its methods are one level deeper.
type underlying struct{ *instancetest.Served }

func (b *box) OfCatalog() instance.Provider { return catalog{b} }

type catalog struct{ *box }

// Provider implements instance.Provider.
func (c catalog) Provider(ctx context.Context) (sdk.Provider, error) {
	all, err := c.box.Provider.Provider(ctx)
	if err != nil {
		return nil, err
	}
	return served{underlying{all.(*instancetest.Served)}, c.commands, c.files}, nil
}

func newBox(t testing.TB) *box {
	t.Helper()
	b := &box{ended: make(chan error, 1)}
	root := t.TempDir()
	b.programs.Root = root
	assert.NilError(t, os.MkdirAll(filepath.Join(root, "workspace"), 0o755))
	b.commands = localcommands.New(localcommands.Options{Check: func(string) error { return nil }, Start: b.programs.Start, Terminals: true})
	b.files = localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return root, nil }, Places: []string{"/workspace"}})
	b.program = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Path", r.URL.EscapedPath())
		w.Header().Set("X-Proto", r.Header.Get("X-Forwarded-Proto"))
		w.Header().Set("X-Hop", r.Header.Get("X-Broker-Hop"))
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(b.program.Close)
	b.Provider = &instancetest.Provider{
		Name: "first", Capabilities: []sdk.Capability{sdk.CapabilityCommands, sdk.CapabilityFiles},
		OnDialPort: func(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", b.program.Listener.Addr().String())
		},
	}
	b.OnExecute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		b.mu.Lock()
		b.origins = append(b.origins, origin.Of(ctx))
		b.mu.Unlock()
		if err := out.Stdout([]byte("ran " + req.Code + "\n")); err != nil {
			return sdk.ExecuteResult{}, err
		}
		if req.Code == "draw" {
			picture := sdk.Artifact{Kind: sdk.ArtifactDisplay, MIMEType: "image/png", Data: make([]byte, 1<<20), Size: 1 << 20, Group: 1}
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, out.Artifact(picture)
		}
		if req.Code == "hang" {
			<-ctx.Done()
			b.ended <- context.Cause(ctx)
			return sdk.ExecuteResult{}, ctx.Err()
		}
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}
	return b
}

// lastOrigin is that of the execution that was begun last.
func (b *box) lastOrigin() origin.Origin {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.origins[len(b.origins)-1]
}

// fixture are two brokers: all instances are those of the first one.
type fixture struct {
	t       testing.TB
	box     *box
	owner   peertest.Owner
	opts    api.Options
	first   string // address of the owner's API
	second  *peertest.Broker
	others  *instancetest.Provider // of the second one
	client  *http.Client
	log     *buffer
	service *instance.Service
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startOwner starts the first broker alone.
func startOwner(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, box: newBox(t), client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, log: &buffer{}}
	t.Cleanup(f.client.CloseIdleConnections)
	logger := hclog.New(&hclog.LoggerOptions{Output: f.log, Level: hclog.Info})
	kept, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kept.Close()) })
	answers, err := idempotency.Open(kept)
	assert.NilError(t, err)
	f.service = instance.NewService(instance.Options{Catalog: instancetest.Catalog{f.box.OfCatalog()}, Limits: instancetest.Limits(), Logger: logger})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, id := range f.box.Live() {
			assert.Check(t, f.box.commands.EndCommands(ctx, id))
		}
		f.service.Shutdown(ctx)
	})
	f.opts = api.Options{
		Instances: f.service, Answers: answers, Logger: logger, Questions: f.service.Answers(),
		Tenants: tenant.NewDirectory([]tenant.Credentials{
			{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}},
		}),
		Bounds: api.Bounds{MaxBody: 1 << 20, RequestTimeout: time.Minute},
	}
	server, err := api.NewServer(f.opts)
	assert.NilError(t, err)
	f.owner = peertest.Owner{Server: server, Service: f.service}
	f.first = peertest.Serve(t, server)
	f.opts.PreviewKey = nil // each broker has its own
	return f
}

// start starts both.
func start(t testing.TB) *fixture {
	t.Helper()
	f := startOwner(t)
	f.others = &instancetest.Provider{Name: "first"}
	f.second = peertest.Beside(t, f.owner, f.opts, instancetest.Catalog{f.others})
	return f
}

// create makes an instance of the session s at the first broker.
func (f *fixture) create() string {
	f.t.Helper()
	var made client.Instance
	f.do(f.first, http.MethodPost, "/api/v1/instances", `{"session_id":"s"}`).wants(http.StatusCreated).decode(&made)
	return made.ID
}

func (f *fixture) request(ctx context.Context, address, method, path, body string, headers ...string) *http.Request {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	assert.NilError(f.t, err)
	req.Header.Set("Authorization", "Bearer acme-token")
	req.Header.Set("X-Request-Id", "test-request")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	return req
}

// do sends a request as tenant acme; a body is JSON.
func (f *fixture) do(address, method, path, body string, headers ...string) answer {
	f.t.Helper()
	resp, err := f.client.Do(f.request(f.t.Context(), address, method, path, body, headers...))
	assert.NilError(f.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(f.t, err)
	return answer{Response: resp, t: f.t, text: string(text)}
}

// answer is a response that was read.
type answer struct {
	*http.Response
	t    testing.TB
	text string
}

func (a answer) wants(status int) answer {
	a.t.Helper()
	assert.Equal(a.t, a.StatusCode, status, a.text)
	return a
}

func (a answer) decode(into any) {
	a.t.Helper()
	assert.NilError(a.t, json.Unmarshal([]byte(a.text), into), a.text)
}

// unavailable asserts that it is an SB009 that may be tried again.
func (a answer) unavailable() client.Problem {
	a.t.Helper()
	var p client.Problem
	a.wants(http.StatusServiceUnavailable).decode(&p)
	assert.Equal(a.t, p.Code, string(sdk.CodeUnavailable))
	assert.Equal(a.t, a.Header.Get("Retry-After"), "1")
	assert.Equal(a.t, p.RequestID, "test-request")
	return p
}
