package mcp_test

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	sdkmcp "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/mcp"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
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
// their commands run as they are. What code does is up to the test.
type box struct {
	*instancetest.Provider
	root     string
	programs frontdoortest.Programs
	commands *localcommands.Commands
	files    *localfiles.Files

	mu sync.Mutex
	// created are the origins of what was made, and asked what was executed.
	created []origin.Origin
	asked   []sdk.ExecuteRequest
	made    []sdk.CreateRequest
}

// served is what the calls of the service arrive at.
type served struct {
	underlying
	*localcommands.Commands
	*localfiles.Files
}

// underlying has what the others have not: its methods are one level deeper.
type underlying struct{ *instancetest.Served }

// catalog has the box alone.
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
	b := &box{root: t.TempDir()}
	b.programs.Root = b.root
	for _, dir := range []string{"workspace", "tmp"} {
		assert.NilError(t, os.MkdirAll(filepath.Join(b.root, dir), 0o755))
	}
	b.commands = localcommands.New(localcommands.Options{Check: func(string) error { return nil }, Start: b.programs.Start})
	b.files = localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return b.root, nil }, Places: []string{"/workspace", "/tmp"}})
	b.Provider = &instancetest.Provider{
		Name: "first", Capabilities: []sdk.Capability{sdk.CapabilityCommands, sdk.CapabilityFiles, sdk.CapabilityFileSearch},
		OnDialPort: func(context.Context, string, uint16) (net.Conn, error) {
			return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens there")
		},
		OnInstall: func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error) {
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		},
	}
	b.OnCreate = func(ctx context.Context, req sdk.CreateRequest) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.created, b.made = append(b.created, origin.Of(ctx)), append(b.made, req)
		return nil
	}
	b.OnExecute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		b.mu.Lock()
		b.asked = append(b.asked, req)
		b.mu.Unlock()
		return execute(ctx, req, out)
	}
	return b
}

var png = []byte("\x89PNG\r\n\x1a\n0123456789")

// execute does what the code says, which is in no language.
func execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	succeeded := sdk.ExecuteResult{Status: sdk.StatusSucceeded, Duration: time.Millisecond}
	verb, rest, _ := strings.Cut(req.Code, " ")
	switch verb {
	case "print":
		return succeeded, out.Stdout([]byte(rest + "\n"))
	case "fail":
		return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 3, Duration: time.Millisecond}, out.Stderr([]byte("NameError: name 'fail' is not defined\n"))
	case "slow":
		return sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137, Detail: "It ran for 1 s.", Duration: time.Second}, nil
	case "crash":
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeConnectionFailed, "the interpreter was lost")
	case "draw":
		for _, a := range []sdk.Artifact{
			{Kind: sdk.ArtifactDisplay, MIMEType: "image/png", Data: png, Size: int64(len(png)), Group: 1},
			{Kind: sdk.ArtifactFile, Name: "artifacts/data.bin", MIMEType: "application/octet-stream", Data: []byte{1, 2}, Size: 2, Group: 2},
			{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte("42"), Size: 2, Group: 3},
		} {
			if err := out.Artifact(a); err != nil {
				return sdk.ExecuteResult{}, err
			}
		}
		return succeeded, nil
	case "flood":
		for range 100 {
			if err := out.Stdout([]byte(strings.Repeat("\x01", 9_999) + "\n")); err != nil {
				return sdk.ExecuteResult{}, err
			}
		}
		return succeeded, out.Stdout([]byte("the end\n"))
	case "hang":
		if err := out.Stdout([]byte("hanging\n")); err != nil {
			return sdk.ExecuteResult{}, err
		}
		<-ctx.Done()
		return sdk.ExecuteResult{}, ctx.Err()
	default:
		return succeeded, nil
	}
}

// fixture is the door on a real TCP listener.
type fixture struct {
	t       testing.TB
	box     *box
	service *instance.Service
	server  *api.Server
	address string // of the listener
	client  *http.Client
}

const (
	token   = "token-of-acme"
	another = "token-of-umbrella"
)

// start opens the door.
func start(t testing.TB, options ...func(*api.Options, *box)) *fixture {
	t.Helper()
	f := &fixture{t: t, box: newBox(t), client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	opened := api.Options{
		Logger: hclog.NewNullLogger(), PreviewKey: make([]byte, 32), Version: "v1.2.3",
		FrontDoors: map[string]frontdoor.Settings{"mcp": {Path: "/mcp"}},
		Tenants: tenant.NewDirectory([]tenant.Credentials{
			{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte(token))}},
			{Tenant: tenant.Tenant{Name: "umbrella"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte(another))}},
		}),
		Bounds: api.Bounds{MaxBody: 2 << 20, RequestTimeout: time.Minute},
	}
	for _, option := range options {
		option(&opened, f.box)
	}
	limits := instancetest.Limits()
	limits.Output = 1 << 20
	f.service = instance.NewService(instance.Options{Catalog: instancetest.Catalog{catalog{f.box}}, Limits: limits, Logger: opened.Logger})
	opened.Instances = f.service
	var err error
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
		f.service.Shutdown(ctx)
		assert.Check(t, f.server.Shutdown(ctx))
		assert.Check(t, <-ended)
	})
	return f
}

// inMemory is a client of the tools as `sandbox-broker mcp` serves them, by the address and
// the token, without a process.
func (f *fixture) inMemory(token string, options *sdkmcp.ClientOptions) *sdkmcp.ClientSession {
	f.t.Helper()
	ours, theirs := sdkmcp.NewInMemoryTransports()
	server := mcp.NewServer("v1.2.3", func(context.Context) (mcp.Caller, error) {
		return mcp.Caller{Client: client.New("http://"+f.address, token).Over(f.client)}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx, theirs)
	}()
	session, err := sdkmcp.NewClient(&sdkmcp.Implementation{Name: "test", Version: "1"}, options).Connect(f.t.Context(), ours, nil)
	assert.NilError(f.t, err)
	f.t.Cleanup(func() {
		_ = session.Close()
		cancel()
		<-ended
	})
	return session
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// overHTTP is a client of the door.
func (f *fixture) overHTTP(token string, options *sdkmcp.ClientOptions) *sdkmcp.ClientSession {
	f.t.Helper()
	transport := &sdkmcp.StreamableClientTransport{
		Endpoint: "http://" + f.address + "/mcp", MaxRetries: -1,
		HTTPClient: &http.Client{Transport: bearer{token, f.client.Transport}},
	}
	session, err := sdkmcp.NewClient(&sdkmcp.Implementation{Name: "test", Version: "1"}, options).Connect(f.t.Context(), transport, nil)
	assert.NilError(f.t, err)
	f.t.Cleanup(func() { _ = session.Close() })
	return session
}

// call calls a tool.
func call(t testing.TB, session *sdkmcp.ClientSession, tool string, arguments map[string]any) *sdkmcp.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &sdkmcp.CallToolParams{Name: tool, Arguments: arguments})
	assert.NilError(t, err)
	return result
}

// textOf is all text of an answer.
func textOf(result *sdkmcp.CallToolResult) string {
	var texts []string
	for _, content := range result.Content {
		if text, ok := content.(*sdkmcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "")
}
