package e2b_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// box is a provider whose sandboxes have one directory of this machine as their /, where
// their programs run as they are.
type box struct {
	*instancetest.Provider
	root     string
	programs frontdoortest.Programs
	commands *localcommands.Commands
	files    *localfiles.Files
	contexts frontdoortest.Contexts
	// writing, if set, stands before the writing of a file.
	writing func() error
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

func (b *box) provider(ctx context.Context) (sdk.Provider, error) {
	all, err := b.Provider.Provider(ctx)
	if err != nil {
		return nil, err
	}
	return served{underlying{all.(*instancetest.Served)}, b.commands, b.files, &b.contexts, b}, nil
}

// WriteFile implements sdk.Files.
func (s served) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	if s.box.writing != nil {
		if err := s.box.writing(); err != nil {
			return sdk.FileInfo{}, err
		}
	}
	return s.Files.WriteFile(ctx, req, content)
}

// catalog has the box alone.
type catalog struct{ *box }

// Provider implements instance.Provider.
func (c catalog) Provider(ctx context.Context) (sdk.Provider, error) { return c.provider(ctx) }

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{root: t.TempDir()}
	b.programs.Root = b.root
	for _, dir := range []string{"home/user", "tmp"} {
		assert.NilError(t, os.MkdirAll(filepath.Join(b.root, dir), 0o755))
	}
	b.commands = localcommands.New(localcommands.Options{Check: func(string) error { return nil }, Start: b.programs.Start, Terminals: true})
	b.files = localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return b.root, nil }, Places: []string{"/home", "/tmp"}})
	b.Provider = &instancetest.Provider{
		Name: "first", Capabilities: []sdk.Capability{sdk.CapabilityCommands, sdk.CapabilityFiles, sdk.CapabilityFileWatch, sdk.CapabilityContexts, sdk.CapabilityNetwork},
		Snapshots: &instancetest.Snapshots{Bytes: 10},
		OnPause:   func(context.Context, string, bool) error { return nil },
	}
	measured := time.UnixMilli(1_700_000_000_000)
	b.OnMeasure = func(context.Context, string) (sdk.InstanceMetrics, error) {
		measured = measured.Add(time.Second) // each look is a second later, half of which was used
		used := time.Duration(measured.Unix()) * time.Second / 2
		return sdk.InstanceMetrics{MeasuredAt: measured, CPUTime: used, CPULimit: 2, Memory: 64 << 20, MemoryLimit: 512 << 20, Disk: 1 << 20, DiskLimit: 1 << 30}, nil
	}
	b.OnExecute = b.execute
	return b
}

// execute does what the code says, which is in no language.
func (b *box) execute(_ context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	succeeded := sdk.ExecuteResult{Status: sdk.StatusSucceeded}
	switch req.Code {
	case "fail":
		err := out.Stderr([]byte("Traceback (most recent call last):\n  x\nNameError: name 'fail' is not defined\n"))
		return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, err
	case "crash":
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeConnectionFailed, "the interpreter was lost")
	case "print":
		return succeeded, out.Stdout([]byte("printed ✓\n"))
	case "draw":
		for _, a := range []sdk.Artifact{
			{Kind: sdk.ArtifactDisplay, MIMEType: "image/png", Data: []byte("png"), Size: 3, Group: 1},
			{Kind: sdk.ArtifactDisplay, MIMEType: "text/plain", Data: []byte("<Figure>"), Size: 8, Group: 1},
			{Kind: sdk.ArtifactDisplay, MIMEType: "application/vnd.e2b.chart+json", Data: []byte(`{"type":"line","elements":[{"label":"a","points":[[1,"x"]]}]}`), Size: 61, Group: 1},
			{Kind: sdk.ArtifactDisplay, MIMEType: "application/vnd.e2b.data+json", Data: []byte(`{"a":[1]}`), Size: 9, Group: 1},
			{Kind: sdk.ArtifactResult, MIMEType: "application/json", Data: []byte(`{"a":1}`), Size: 7, Group: 2},
			{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte(`'a text'`), Size: 8, Group: 2},
			{Kind: sdk.ArtifactResult, MIMEType: "application/x-other", Data: []byte{1, 2}, Size: 2, Group: 2},
			{Kind: sdk.ArtifactResult, MIMEType: "application/vnd.other.v1+json", Data: []byte(`[1]`), Size: 3, Group: 2},
			{Kind: sdk.ArtifactResult, MIMEType: "application/vnd.e2b.chart+json", Data: []byte(`["no", "object"]`), Size: 16, Group: 2},
			{Kind: sdk.ArtifactResult, MIMEType: "application/vnd.e2b.data+json", Data: []byte(`{"cut`), Size: 5, Group: 2},
		} {
			if err := out.Artifact(a); err != nil {
				return sdk.ExecuteResult{}, err
			}
		}
		return succeeded, nil
	default:
		return succeeded, out.Artifact(sdk.Artifact{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte("42"), Size: 2})
	}
}

// fixture is the door on a real TCP listener, with a sandbox.
type fixture struct {
	t         testing.TB
	box       *box
	service   *instance.Service
	snapshots *snapshot.Service
	server    *api.Server
	address   string // of the listener
	client    *http.Client
	sandbox   created
}

// created is a sandbox as its creator is told of it.
type created struct {
	SandboxID, TemplateID, ClientID, EnvdVersion string
	EnvdAccessToken, TrafficAccessToken          string
}

const (
	apiKey  = "X-API-KEY: e2b_00000000000000000000000000000000000acce5"
	another = "X-API-KEY: e2b_00000000000000000000000000000000000b0b0b"
	asJSON  = "Content-Type: application/json"
	asBytes = "Content-Type: application/octet-stream"
)

func keyOf(header string) [32]byte {
	return sha256.Sum256([]byte(strings.TrimPrefix(header, "X-API-KEY: ")))
}

// reach is what the operator allows the first tenant.
func reach() *sdk.NetworkPolicy {
	return &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{
		{Host: "*.example.com"},
		{Host: "api.example.org", Methods: []string{"GET"}},
		{Host: "db.example.net", Ports: []int{5432}, TCP: true},
		{Host: "192.0.2.7", Ports: []int{443, 5432}, TCP: true, Private: true},
	}}
}

// start opens the door and makes a sandbox.
func start(t *testing.T, options ...func(*api.Options, *box)) *fixture {
	t.Helper()
	f := &fixture{t: t, box: newBox(t), client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	kept, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	answers, err := idempotency.Open(kept)
	assert.NilError(t, err)
	opened := api.Options{
		Answers: answers, Logger: hclog.NewNullLogger(), PreviewKey: make([]byte, 32),
		FrontDoors: map[string]frontdoor.Settings{"e2b": {Path: "/e2b", Templates: map[string]string{"base": "", "code-interpreter-v1": "", "data": "python"}}},
		Tenants: tenant.NewDirectory([]tenant.Credentials{
			{Tenant: tenant.Tenant{Name: "acme", Network: reach()}, TokenSHA256: [][32]byte{keyOf(apiKey)}},
			{Tenant: tenant.Tenant{Name: "umbrella"}, TokenSHA256: [][32]byte{keyOf(another)}},
		}),
		Bounds: api.Bounds{MaxBody: 2 << 20, RequestTimeout: time.Minute},
	}
	for _, option := range options {
		option(&opened, f.box)
	}
	f.service = instance.NewService(instance.Options{Catalog: instancetest.Catalog{catalog{f.box}}, Limits: instancetest.Limits(), Tenants: opened.Tenants, Logger: opened.Logger})
	opened.Instances = f.service
	quotas, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Snapshots: 3}}}})
	assert.NilError(t, err)
	f.snapshots = snapshot.NewService(snapshot.Options{
		Instances: f.service, Providers: func() []instance.Provider { return instance.Reachable(f.service) },
		Quotas: quotas, Journal: snapshot.NewStoreJournal(kept), Secret: make([]byte, 32), Logger: opened.Logger,
		Limits: snapshot.Limits{DefaultTTL: time.Hour, MaxTTL: 2 * time.Hour, Timeout: time.Minute}, Known: func(string) bool { return true },
	})
	opened.Snapshots = f.snapshots
	f.server, err = api.NewServer(opened)
	assert.NilError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	f.address = listener.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- f.server.Serve(listener) }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, id := range f.box.Live() {
			assert.Check(t, f.box.commands.EndCommands(ctx, id))
		}
		f.snapshots.Close()
		quotas.Close()
		f.service.Shutdown(ctx)
		assert.Check(t, f.server.Shutdown(ctx))
		assert.Check(t, <-ended)
		assert.Check(t, kept.Close())
	})
	f.sandbox = f.create(`{"templateID":"base","timeout":600}`)
	if beside {
		opened.PreviewKey = nil // each broker has its own
		f.address = peertest.Beside(t, peertest.Owner{Server: f.server, Service: f.service}, opened, instancetest.Catalog{catalog{f.box}}).Address
	}
	return f
}

// beside has start send all requests but the first one, which makes the sandbox, to another
// broker.
var beside bool

func TestASandboxOfAnotherBroker(t *testing.T) {
	beside = true
	defer func() { beside = false }()
	for name, test := range map[string]func(*testing.T){
		"processes": TestProcessesOnTheWire, "files": TestFilesOnTheWire, "directories": TestFilesystemOnTheWire, "code": TestCodeOnTheWire,
		"uploads that are not whole": TestUploadsThatAreNotWhole, "silent streams": TestAStreamThatIsSilentGivesSignsOfLife,
		"processes without their clients": TestAProcessGoesOnWithoutItsClient, "watchers": TestWatchersTellWhatChanged,
		"the end of a sandbox": TestTheEndOfASandboxMoves, "a sandbox that is paused": TestASandboxThatIsPaused,
		"programs at hosts": TestAProgramIsReachedByAHostOfItsOwn, "programs by fields": TestAProgramIsReachedByFieldsOfTheHeader, "WebSockets": TestAWebSocketIsPassedOn,
		"ports that do not answer": TestPortsThatDoNotAnswer,
	} {
		if testing.Short() && !slices.Contains([]string{"processes", "files", "watchers", "the end of a sandbox"}, name) {
			continue
		}
		t.Run(name, test)
	}
	t.Run("a large body", func(t *testing.T) { // that of a stranger is bounded, and nobody knows here who asks
		f := start(t)
		f.ask(http.MethodPost, "/execute", `{"code":"`+strings.Repeat("#", 200<<10)+`"}`).wants(http.StatusOK)
	})
}

// create makes a sandbox.
func (f *fixture) create(body string) (made created) {
	f.t.Helper()
	f.do(http.MethodPost, "/v2/sandboxes", body, apiKey).wants(http.StatusCreated).decode(&made)
	return made
}

// data are the headers by which the SDKs ask the sandbox itself.
func (f *fixture) data() []string {
	return []string{"E2b-Sandbox-Id: " + f.sandbox.SandboxID, "X-Access-Token: " + f.sandbox.EnvdAccessToken}
}

// ask asks the sandbox itself.
func (f *fixture) ask(method, path, body string, headers ...string) answer {
	f.t.Helper()
	return f.do(method, path, body, slices.Concat(f.data(), headers)...)
}

// do sends a request below where the door is.
func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	return f.send(f.request(f.t.Context(), method, path, body, headers...))
}

func (f *fixture) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+f.address+"/e2b"+path, strings.NewReader(body))
	assert.NilError(f.t, err)
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

// stream asks the sandbox for a stream of the Connect protocol, and reads its messages.
func (f *fixture) stream(method, message string, headers ...string) []string {
	f.t.Helper()
	a := f.ask(http.MethodPost, method, envelope(0, message), append(headers, "Content-Type: application/connect+json")...).wants(http.StatusOK)
	return messages(f.t, a.text)
}

// envelope is a message of a stream of the Connect protocol.
func envelope(flags byte, message string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))) + message
}

// messages are those of a stream, the last one after a space.
func messages(t testing.TB, stream string) (all []string) {
	t.Helper()
	for r := bytes.NewReader([]byte(stream)); r.Len() > 0; {
		var head struct {
			Flags  byte
			Length uint32
		}
		assert.NilError(t, binary.Read(r, binary.BigEndian, &head), "%q", stream)
		text := make([]byte, head.Length)
		_, err := io.ReadFull(r, text)
		assert.NilError(t, err, "%q", stream)
		switch head.Flags {
		case 0:
			all = append(all, string(text))
		case 2:
			assert.Equal(t, r.Len(), 0, "the end is the last")
			all = append(all, "end "+string(text))
		default:
			t.Fatalf("a message has the flags %d: %q", head.Flags, text)
		}
	}
	return all
}

// answer is a response that was read.
type answer struct {
	*http.Response
	t    testing.TB
	text string
}

// wants asserts the status and returns the answer.
func (a answer) wants(status int) answer {
	a.t.Helper()
	assert.Equal(a.t, a.StatusCode, status, a.text)
	return a
}

func (a answer) decode(into any) {
	a.t.Helper()
	assert.NilError(a.t, json.Unmarshal([]byte(a.text), into), a.text)
}

// refusal is one of the form that the SDKs read.
type refusal struct {
	Code      int
	Message   string
	ErrorCode string `json:"error_code"`
	RequestID string `json:"request_id"`
	SandboxID string `json:"sandboxId"`
}

// refuses asserts that the answer is a refusal: the SDKs decide by the status that is in the
// body once more.
func (a answer) refuses(status int, code sdk.Code) (told refusal) {
	a.t.Helper()
	a.wants(status).decode(&told)
	assert.Equal(a.t, told.Code, status, a.text)
	assert.Equal(a.t, told.ErrorCode, string(code), a.text)
	assert.Assert(a.t, strings.HasSuffix(told.Message, " ("+string(code)+")"), a.text)
	assert.Equal(a.t, a.Header.Get("Content-Type"), "application/json")
	assert.Assert(a.t, told.RequestID != "", a.text)
	return told
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
