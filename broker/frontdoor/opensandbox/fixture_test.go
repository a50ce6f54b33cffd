package opensandbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/peer/peertest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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

// fixture is the door on a real TCP listener, with a sandbox whose programs run on this
// machine as they are and whose files are in a directory of it.
type fixture struct {
	t        *testing.T
	box      *box
	service  *instance.Service
	kept     *snapshot.Service
	state    *store.Store
	server   *api.Server
	answers  *idempotency.Answers
	address  string // of the listener
	sandbox  string // ID of the sandbox
	token    string // of the sandbox
	client   *http.Client
	endpoint string           // path of execd
	second   *peertest.Broker // nil where there is none beside
}

type fake = instancetest.Provider

// box is a provider of one sandbox.
type box struct {
	*fake
	root      string // the sandbox's /
	workspace string
	commands  *localcommands.Commands
	files     *localfiles.Files
	metrics   atomic.Pointer[sdk.InstanceMetrics]
	// starting and measuring, if set, stand before the start of a command and a look at
	// the metrics, and started behind the start.
	starting, measuring, started func() error
	// asked and reading, if set, are told of the start of a command and of a look at it.
	asked   func(sdk.CommandRequest)
	reading func(sdk.ReadCommandRequest)
	// programs have the sandbox's own environment.
	programs frontdoortest.Programs
	// written counts the bytes that have come of files.
	written atomic.Int64
	// contexts are there where the provider says that it has them.
	contexts frontdoortest.Contexts
}

// served is what the calls of the service arrive at.
type served struct {
	underlying
	*localcommands.Commands
	*localfiles.Files
	*frontdoortest.Contexts
	box *box
}

// underlying has what the others have not: its methods are one level deeper.
type underlying struct{ *instancetest.Served }

// Provider implements instance.Provider.
func (b *box) Provider(ctx context.Context) (sdk.Provider, error) {
	all, err := b.fake.Provider(ctx)
	if err != nil {
		return nil, err
	}
	return served{underlying{all.(*instancetest.Served)}, b.commands, b.files, &b.contexts, b}, nil
}

// InstanceMetrics implements sdk.Meter. Each look finds that half a second of a processor
// was used in one second.
func (s served) InstanceMetrics(context.Context, string) (sdk.InstanceMetrics, error) {
	if s.box.measuring != nil {
		if err := s.box.measuring(); err != nil {
			return sdk.InstanceMetrics{}, err
		}
	}
	now := *s.box.metrics.Load()
	next := now
	next.MeasuredAt, next.CPUTime = now.MeasuredAt.Add(time.Second), now.CPUTime+time.Second/2
	s.box.metrics.Store(&next)
	return now, nil
}

// WriteFile implements sdk.Files.
func (s served) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	return s.Files.WriteFile(ctx, req, io.TeeReader(content, &counter{&s.box.written}))
}

type counter struct{ n *atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// StartCommand implements sdk.Commands.
func (s served) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	if s.box.starting != nil {
		if err := s.box.starting(); err != nil {
			return sdk.Command{}, err
		}
	}
	if s.box.asked != nil {
		s.box.asked(req)
	}
	command, err := s.Commands.StartCommand(ctx, req)
	if err == nil && s.box.started != nil {
		err = s.box.started()
	}
	return command, err
}

// ReadCommand implements sdk.Commands.
func (s served) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	if s.box.reading != nil {
		s.box.reading(req)
	}
	return s.Commands.ReadCommand(ctx, req, out)
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{root: t.TempDir()}
	b.workspace = filepath.Join(b.root, "workspace")
	b.programs.Root = b.root
	assert.NilError(t, os.Mkdir(b.workspace, 0o755))
	b.commands = localcommands.New(localcommands.Options{
		Check: func(string) error { return nil }, Start: b.programs.Start, Terminals: true,
	})
	b.files = localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return b.root, nil }})
	b.fake = &fake{Name: "first", SameID: "i1", Capabilities: []sdk.Capability{
		sdk.CapabilityCommands, sdk.CapabilityFiles, sdk.CapabilityFileSearch, sdk.CapabilityFileMode, sdk.CapabilityMetrics,
	}}
	b.metrics.Store(&sdk.InstanceMetrics{
		MeasuredAt: time.UnixMilli(1_700_000_000_000), CPUTime: time.Minute, CPULimit: 2, Memory: 64 << 20, MemoryLimit: 512 << 20,
	})
	return b
}

var door = map[string]frontdoor.Settings{"opensandbox": {
	Path: "/opensandbox", Images: map[string]string{"python:3.12": "python"},
}}

// previewKey is what outlives the processes of a broker.
var previewKey = make([]byte, 32)

const apiKey = "OPEN-SANDBOX-API-KEY: acme-token"

// reach is what the operator allows the first tenant.
func reach() *sdk.NetworkPolicy {
	return &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "*.example.com"}, {Host: "api.example.org", Methods: []string{"GET"}}}}
}

// start opens the door and makes a sandbox.
func start(t *testing.T, options ...func(*box)) *fixture {
	t.Helper()
	f := &fixture{t: t, box: newBox(t), client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	for _, option := range options {
		option(f.box)
	}
	logger := hclog.NewNullLogger()
	tenants := tenant.NewDirectory([]tenant.Credentials{
		{Tenant: tenant.Tenant{Name: "acme", Network: reach()}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}},
		{Tenant: tenant.Tenant{Name: "umbrella"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("umbrella-token"))}},
	})
	f.service = instance.NewService(instance.Options{Catalog: instancetest.Catalog{f.box}, Limits: instancetest.Limits(), Tenants: tenants, Logger: logger})
	kept, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	f.state = kept
	f.answers, err = idempotency.Open(kept)
	assert.NilError(t, err)
	quotas, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Snapshots: 3}}}})
	assert.NilError(t, err)
	f.kept = snapshot.NewService(snapshot.Options{
		Instances: f.service, Providers: func() []instance.Provider { return instance.Reachable(f.service) },
		Quotas: quotas, Journal: snapshot.NewStoreJournal(kept), Secret: make([]byte, 32), Logger: logger,
		Limits: snapshot.Limits{DefaultTTL: time.Hour, MaxTTL: 2 * time.Hour, Timeout: time.Minute}, Known: func(string) bool { return true },
	})
	opened := api.Options{
		Instances: f.service, Snapshots: f.kept, Answers: f.answers, Logger: logger, FrontDoors: door, PreviewKey: previewKey,
		Tenants: tenants,
		Bounds:  api.Bounds{MaxBody: 2 << 20, RequestTimeout: time.Minute},
	}
	server, err := api.NewServer(opened)
	assert.NilError(t, err)
	f.server = server
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	f.address = listener.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, id := range f.box.Live() {
			assert.Check(t, f.box.commands.EndCommands(ctx, id))
		}
		f.kept.Close()
		quotas.Close()
		f.service.Shutdown(ctx)
		assert.Check(t, server.Shutdown(ctx))
		assert.Check(t, <-ended)
		assert.Check(t, kept.Close())
	})
	var made struct{ ID string }
	f.do(http.MethodPost, "/v1/sandboxes", `{"image": {"uri": "python:3.12"}}`, apiKey).wants(http.StatusAccepted).decode(&made)
	f.sandbox = made.ID
	var endpoint struct{ Headers map[string]string }
	f.do(http.MethodGet, "/v1/sandboxes/"+f.sandbox+"/endpoints/44772", "", apiKey).wants(http.StatusOK).decode(&endpoint)
	f.token = endpoint.Headers["X-EXECD-ACCESS-TOKEN"]
	f.endpoint = "/sandboxes/" + f.sandbox + "/proxy/44772"
	if beside {
		opened.PreviewKey = nil // each broker has its own
		f.second = peertest.Beside(t, peertest.Owner{Server: f.server, Service: f.service}, opened, instancetest.Catalog{f.box})
		f.address = f.second.Address
	}
	return f
}

// beside has start send all requests but the first ones, which make the sandbox, to another
// broker.
var beside bool

func TestASandboxOfAnotherBroker(t *testing.T) {
	beside = true
	defer func() { beside = false }()
	for name, test := range map[string]func(*testing.T){
		"files": TestFilesAreMoved, "text in files": TestTextIsReplaced, "directories": TestDirectoriesAreListedToADepth,
		"files of another tenant": TestFilesOfAnotherTenantAreNotThere, "metrics": TestAWatchHasALineForEachLook,
		"operations": TestOf100EqualOperationsAtOnceOneIsBegun, "a shell": TestAShellAtATerminal,
		"terminals without clients": TestATerminalGoesOnWithoutItsClient, "streams": TestACommandIsStreamedWholeToWhoeverReads,
		"code": TestTheEventsOfACell, "ports": TestPortsBelowTheDaemon, "WebSockets": TestAWebSocketReachesTheUsersProgram,
		"metadata": TestNoPatchOfMetadataIsLostToAnother,
	} {
		if testing.Short() && !slices.Contains([]string{"files", "a shell", "ports", "metadata"}, name) {
			continue
		}
		t.Run(name, test)
	}
	t.Run("by a listener of the door's own", func(t *testing.T) {
		f := start(t)
		own := f.second.Server.FrontDoors()["opensandbox"]
		own.Open(true)
		address := peertest.Serve(t, own)
		f.server.FrontDoors()["opensandbox"].Open(true)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/v1/sandboxes/"+f.sandbox+"/endpoints/44772", nil)
		assert.NilError(t, err)
		req.Header.Set("OPEN-SANDBOX-API-KEY", "acme-token")
		var endpoint struct{ Endpoint string }
		f.send(req).wants(http.StatusOK).decode(&endpoint)
		assert.Equal(t, endpoint.Endpoint, address+"/sandboxes/"+f.sandbox+"/proxy/44772")
	})
}

// execd asks the sandbox's daemon.
func (f *fixture) execd(method, path, body string, headers ...string) answer {
	f.t.Helper()
	return f.do(method, f.endpoint+path, body, slices.Concat([]string{"X-EXECD-ACCESS-TOKEN: " + f.token}, headers)...)
}

// do sends a request below where the door is.
func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	return f.send(f.request(f.t.Context(), method, path, strings.NewReader(body), headers...))
}

func (f *fixture) request(ctx context.Context, method, path string, body io.Reader, headers ...string) *http.Request {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+f.address+"/opensandbox"+path, body)
	assert.NilError(f.t, err)
	req.Header.Set("X-Request-ID", "test-request")
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	return req
}

func (f *fixture) send(req *http.Request) answer {
	f.t.Helper()
	resp, err := f.client.Do(req)
	assert.NilError(f.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(f.t, err)
	return answer{Response: resp, t: f.t, text: string(text)}
}

// write makes a file of the sandbox.
func (f *fixture) write(name, content string) {
	f.t.Helper()
	file := filepath.Join(f.box.root, name)
	assert.NilError(f.t, os.MkdirAll(filepath.Dir(file), 0o755))
	assert.NilError(f.t, os.WriteFile(file, []byte(content), 0o644))
}

// read is the content of a file of the sandbox.
func (f *fixture) read(name string) string {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join(f.box.root, name))
	assert.NilError(f.t, err)
	return string(content)
}

// answer is a response that was read.
type answer struct {
	*http.Response
	t    *testing.T
	text string
}

// wants asserts the status and returns the answer.
func (a answer) wants(status int) answer {
	a.t.Helper()
	assert.Equal(a.t, a.StatusCode, status, a.text)
	return a
}

// empty asserts that the answer says in its head that it has no body.
func (a answer) empty() {
	a.t.Helper()
	assert.Equal(a.t, a.text, "")
	assert.Equal(a.t, a.Header.Get("Content-Length"), "0")
}

func (a answer) decode(into any) {
	a.t.Helper()
	assert.NilError(a.t, json.Unmarshal([]byte(a.text), into), a.text)
}

// refuses asserts that the answer is a refusal of the form that the clients read.
func (a answer) refuses(status int, code string) {
	a.t.Helper()
	a.wants(status)
	var refusal map[string]string
	a.decode(&refusal)
	assert.Equal(a.t, refusal["code"], code, a.text)
	assert.Assert(a.t, refusal["message"] != "", a.text)
}
