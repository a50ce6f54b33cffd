package deerflow_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
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
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/deerflow"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/peer/peertest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
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

type fake = instancetest.Provider

// box is a provider whose sandboxes have programs that run on this machine as they are, and
// files in one directory of it.
type box struct {
	*fake
	root     string // the sandbox's /
	commands *localcommands.Commands
	files    *localfiles.Files
	programs frontdoortest.Programs
	mu       sync.Mutex
	asked    []sdk.CommandRequest
	// writing, if set, is how each writing of a file fails.
	writing error
	// ailing is what calls fail with in sandboxes that are in trouble, by the provider's ID.
	ailing map[string]error
}

// ail has all calls fail in the sandboxes that are there; with nil they are well again.
func (b *box) ail(failure error) {
	live := b.Live()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ailing = map[string]error{}
	for _, id := range live {
		b.ailing[id] = failure
	}
}

func (b *box) trouble(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ailing[id]
}

// served is what the calls of the service arrive at.
type served struct {
	underlying
	*localcommands.Commands
	*localfiles.Files
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
	return served{underlying{all.(*instancetest.Served)}, b.commands, b.files, b}, nil
}

// StartCommand implements sdk.Commands. What programs of the sandbox know as /mnt is below
// its root.
func (s served) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	s.box.mu.Lock()
	s.box.asked = append(s.box.asked, req)
	s.box.mu.Unlock()
	if err := s.box.trouble(req.InstanceID); err != nil {
		return sdk.Command{}, err
	}
	argv := append([]string{}, req.Argv...)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "/mnt/user-data", s.box.root+"/mnt/user-data")
	}
	req.Argv = argv
	return s.Commands.StartCommand(ctx, req)
}

// StatFile implements sdk.Files.
func (s served) StatFile(ctx context.Context, id, path string) (sdk.FileInfo, error) {
	if err := s.box.trouble(id); err != nil {
		return sdk.FileInfo{}, err
	}
	return s.Files.StatFile(ctx, id, path)
}

// Destroy implements sdk.Provider.
func (s served) Destroy(ctx context.Context, id string) error {
	if err := s.box.commands.EndCommands(ctx, id); err != nil {
		return err
	}
	return s.underlying.Destroy(ctx, id)
}

// WriteFile implements sdk.Files.
func (s served) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	if s.box.writing != nil {
		return sdk.FileInfo{}, s.box.writing
	}
	return s.Files.WriteFile(ctx, req, content)
}

// fixture is the door on a real TCP listener.
type fixture struct {
	t       *testing.T
	box     *box
	service *instance.Service
	server  *api.Server
	opened  api.Options
	address string
	client  *http.Client
	log     *lockedBuffer
	// url of the sandbox that is there, below the door.
	url      string
	settings frontdoor.Settings
	// within is the deadline of a request.
	within time.Duration
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const (
	acmeKey  = "X-API-Key: acme-token"
	rivalKey = "X-API-Key: rival-token"
	firstID  = "9f2c0123456789ab"
)

// start opens the door. The changes are to its settings.
func start(t *testing.T, changes ...func(*frontdoor.Settings)) *fixture {
	t.Helper()
	b := &box{root: t.TempDir()}
	b.programs.Root = b.root
	for _, dir := range []string{"workspace", "mnt/user-data"} {
		assert.NilError(t, os.MkdirAll(filepath.Join(b.root, dir), 0o755))
	}
	b.commands = localcommands.New(localcommands.Options{Check: func(string) error { return nil }, Start: b.programs.Start})
	b.files = localfiles.New(localfiles.Options{
		Directory: func(string) (string, error) { return b.root, nil }, Places: []string{"/workspace", "/mnt/user-data"},
	})
	b.fake = &fake{Name: "first", Capabilities: []sdk.Capability{
		sdk.CapabilityCommands, sdk.CapabilityFiles, sdk.CapabilityFileSearch, sdk.CapabilityPause,
	}}
	b.OnPause = func(context.Context, string, bool) error { return nil }
	f := &fixture{t: t, within: time.Minute, box: b, client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, log: &lockedBuffer{}}
	logger := hclog.New(&hclog.LoggerOptions{Output: f.log, Level: hclog.Trace})
	f.service = instance.NewService(instance.Options{Catalog: instancetest.Catalog{b}, Limits: instancetest.Limits(), Logger: logger})
	settings := frontdoor.Settings{Path: "/deerflow", Lease: time.Minute}
	for _, change := range changes {
		change(&settings)
	}
	f.settings = settings
	f.serve()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, id := range b.Live() {
			assert.Check(t, b.commands.EndCommands(ctx, id))
		}
		f.service.Shutdown(ctx)
	})
	f.url = f.create(firstID, acmeKey)
	if beside {
		f.opened.PreviewKey = nil // each broker has its own
		f.address = peertest.Beside(t, peertest.Owner{Server: f.server, Service: f.service}, f.opened, instancetest.Catalog{b}).Address
	}
	return f
}

// another is the door of the next process, with the same sandboxes.
func (f *fixture) another() *fixture {
	next := *f
	next.serve()
	return &next
}

// restarted is the door after a restart of the broker. Its provider has not said yet what it
// has: reconcile has it do so.
func (f *fixture) restarted(within time.Duration) (next *fixture, reconcile func()) {
	f.t.Helper()
	past := instance.Past{}
	there, err := f.box.Provider(f.t.Context())
	assert.NilError(f.t, err)
	listed, err := there.List(f.t.Context())
	assert.NilError(f.t, err)
	for _, one := range listed {
		id := instance.ID{Tenant: one.Labels[sdk.LabelTenant], Session: one.Labels[sdk.LabelSession], Instance: one.Labels[sdk.LabelInstance]}
		past.Records = append(past.Records, instance.Record{
			ID: id, Provider: f.box.Name, Made: one.ID, Claimed: true, FrontDoor: deerflow.Name, TTL: time.Hour, Idle: time.Hour,
			Intended: time.Now(), Created: time.Now(), Expires: time.Now().Add(time.Hour), Deadline: time.Now().Add(time.Hour),
		})
	}
	next = &fixture{}
	*next = *f
	next.within = within
	next.service = instance.NewService(instance.Options{
		Catalog: instancetest.Catalog{f.box}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Past: past,
	})
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		next.service.Shutdown(ctx)
	})
	next.serve()
	return next, func() { assert.Check(f.t, next.service.Reconcile(f.t.Context(), f.box, there)) }
}

// serve opens the door until the test ends.
func (f *fixture) serve() {
	t := f.t
	t.Helper()
	credentials := func(name string) tenant.Credentials {
		return tenant.Credentials{Tenant: tenant.Tenant{Name: name}, TokenSHA256: [][32]byte{sha256.Sum256([]byte(name + "-token"))}}
	}
	opened := api.Options{
		Instances: f.service, Logger: hclog.New(&hclog.LoggerOptions{Output: f.log, Level: hclog.Trace}), PreviewKey: make([]byte, 32),
		Tenants:    tenant.NewDirectory([]tenant.Credentials{credentials("acme"), credentials("rival")}),
		FrontDoors: map[string]frontdoor.Settings{deerflow.Name: f.settings},
		Bounds:     api.Bounds{MaxBody: 2 << 20, RequestTimeout: f.within},
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
		assert.Check(t, server.Shutdown(ctx))
		assert.Check(t, <-ended)
	})
	f.opened = opened
}

// beside has start send all requests but the first one, which makes the sandbox, to another
// broker.
var beside bool

func TestASandboxOfAnotherBroker(t *testing.T) {
	beside = true
	defer func() { beside = false }()
	t.Run("a shell", TestCommandsOfOneShellWaitForEachOther)
	t.Run("the token", TestTheTokenOfASandboxIsOfUseThereAlone)
	t.Run("files", TestPathsOfFilesLeadNowhereElse)
	t.Run("a client that leaves", TestAClientThatLeavesGivesUpItsCommand)
	t.Run("a sandbox that is paused", TestASandboxThatIsPausedIsResumedByItsCreator)
	t.Run("the provisioner", func(t *testing.T) {
		f := start(t)
		assert.Equal(t, f.create(firstID, acmeKey), f.url, "the second broker finds the sandbox of the first one")
		f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK)
		f.do(http.MethodDelete, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusOK)
		assert.Equal(t, len(f.box.Live()), 0)
		f.do(http.MethodGet, "/api/sandboxes/"+firstID, "", acmeKey).wants(http.StatusNotFound)
	})
}

// create makes a sandbox, and returns its path below the door.
func (f *fixture) create(id, key string) string {
	f.t.Helper()
	var made struct {
		URL    string `json:"sandbox_url"`
		ID     string `json:"sandbox_id"`
		Status string
	}
	f.do(http.MethodPost, "/api/sandboxes", `{"sandbox_id":"`+id+`"}`, key).wants(http.StatusOK).decode(&made)
	assert.Equal(f.t, made.ID, id)
	assert.Equal(f.t, made.Status, "Running")
	path, ok := strings.CutPrefix(made.URL, "http://"+f.address+"/deerflow")
	assert.Assert(f.t, ok, made.URL)
	return path
}

// post asks the sandbox.
func (f *fixture) post(path, body string) answer {
	f.t.Helper()
	return f.do(http.MethodPost, f.url+path, body)
}

// do sends a request below where the door is.
func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	a, err := f.ask(f.t.Context(), method, path, body, headers...)
	assert.NilError(f.t, err)
	return a
}

// ask is do for other goroutines than the test's.
func (f *fixture) ask(ctx context.Context, method, path, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+f.address+"/deerflow"+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{Response: resp, t: f.t, text: string(text)}, err
}

// answer is a response that was read.
type answer struct {
	*http.Response
	t    *testing.T
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

// refuses asserts that the answer is a refusal of the form that clients read.
func (a answer) refuses(status int, code string) {
	a.t.Helper()
	a.wants(status)
	var refusal struct {
		Success       *bool
		Message, Code string
		Detail        any
	}
	a.decode(&refusal)
	assert.Equal(a.t, refusal.Code, code, a.text)
	assert.Assert(a.t, refusal.Success != nil && !*refusal.Success && refusal.Message != "" && refusal.Detail != nil, a.text)
}

// exec is what a command in the shell prints.
func (f *fixture) exec(command string) string {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"command": command, "no_change_timeout": 600})
	assert.NilError(f.t, err)
	var answered struct {
		Data struct{ Output, Status string }
	}
	f.post("/v1/shell/exec", string(body)).wants(http.StatusOK).decode(&answered)
	assert.Equal(f.t, answered.Data.Status, "completed")
	return answered.Data.Output
}

var listAll = instance.ListRequest{FrontDoor: deerflow.Name}

// createOf is what the broker's own API would ask for.
func createOf(session string) instance.CreateRequest { return instance.CreateRequest{Session: session} }
