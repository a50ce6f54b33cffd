package ragflow

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// fakeInstances answers what it was told to, and keeps what it was asked.
type fakeInstances struct {
	mu       sync.Mutex
	outcome  instance.Execution
	err      error
	draining bool
	usual    []instance.ProviderInfo
	all      []instance.ProviderInfo
	who      tenant.Tenant
	asked    instance.RunRequest
	runs     int
}

func (f *fakeInstances) Run(_ context.Context, who tenant.Tenant, req instance.RunRequest) (instance.Execution, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs++
	f.who, f.asked = who, req
	return f.outcome, f.err
}

func (f *fakeInstances) Providers(tenant.Tenant) []instance.ProviderInfo { return f.all }
func (f *fakeInstances) DefaultProviders() []instance.ProviderInfo       { return f.usual }
func (f *fakeInstances) Draining() bool                                  { return f.draining }

// people are the tenants by token and by name.
type people struct{ *tenant.Directory }

func (p people) Tenant(name string) (tenant.Tenant, bool) {
	return tenant.Tenant{Name: name}, name == "acme" || name == "rival"
}

func provider(label string, ready bool) instance.ProviderInfo {
	return instance.ProviderInfo{Label: label, Status: instance.Status{Ready: ready}}
}

// served is a server with the door at /ragflow.
type served struct {
	*fakeInstances
	door    *Door
	server  *rest.Server
	address string
}

func serve(t testing.TB, s frontdoor.Settings) served {
	t.Helper()
	credentials := func(name string) tenant.Credentials {
		return tenant.Credentials{Tenant: tenant.Tenant{Name: name}, TokenSHA256: [][32]byte{sha256.Sum256([]byte(name + "-token"))}}
	}
	tenants := people{tenant.NewDirectory([]tenant.Credentials{credentials("acme"), credentials("rival")})}
	server := rest.NewServer(rest.Options{
		Tenants: tenants, Logger: hclog.NewNullLogger(),
		Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	f := &fakeInstances{usual: []instance.ProviderInfo{provider("p", true)}}
	d := Add(server, f, tenants)
	if s.Path == "" {
		s.Path = "/ragflow"
	}
	d.Apply(&s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		assert.Check(t, server.Shutdown(context.Background()))
		assert.Check(t, <-done)
	})
	return served{f, d, server, listener.Addr().String()}
}

// exchange sends bytes on a connection of its own, and returns all that comes.
func (s served) exchange(t testing.TB, request string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.address)
	assert.NilError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	assert.NilError(t, err)
	answer, err := io.ReadAll(conn)
	assert.NilError(t, err)
	return string(answer)
}

func request(method, target, headers, body string) string {
	text := method + " " + target + " HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n" + headers
	if method == http.MethodPost {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return text + "\r\n" + body
}

func bodyOf(code, language string) string {
	body, _ := json.Marshal(map[string]any{"code_b64": base64.StdEncoding.EncodeToString([]byte(code)), "language": language, "arguments": map[string]any{}})
	return string(body)
}

const bearer = "Authorization: Bearer acme-token\r\n"

var (
	changing  = regexp.MustCompile(`(?mi)^(date|x-request-id): .*\r\n`)
	requestID = regexp.MustCompile(`"request_id":"[^"]+"`)
)

func TestTheBytesOnTheWire(t *testing.T) {
	succeeded := instance.Execution{Stdout: []byte("hi\n"), Result: sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: json.RawMessage(`42`), Duration: 10 * time.Millisecond}, Artifacts: []sdk.Artifact{{Kind: sdk.ArtifactFile, Name: "artifacts/x.png", Data: []byte("png"), Size: 3}}}
	of := func(status sdk.Status, exit int) instance.Execution {
		return instance.Execution{Stdout: []byte("lost"), Stderr: []byte("why\n"), Result: sdk.ExecuteResult{Status: status, ExitCode: exit, Duration: 10 * time.Millisecond, Findings: []sdk.Finding{{Line: 1, Message: "import of ctypes"}}}}
	}
	run := request("POST", "/ragflow/run", bearer, bodyOf("x", "python"))
	for _, test := range []struct {
		name, request string
		outcome       instance.Execution
		err           error
		draining      bool
	}{
		{name: "health", request: request("GET", "/ragflow/healthz", "", "")},
		{name: "health-root", request: request("GET", "/ragflow/", "", "")},
		{name: "health-bare", request: request("GET", "/ragflow", "", "")},
		{name: "health-token", request: request("GET", "/ragflow/acme-token/healthz", "", "")},
		{name: "health-token-root", request: request("GET", "/ragflow/acme-token/", "", "")},
		{name: "health-token-bare", request: request("GET", "/ragflow/acme-token", "", "")},
		{name: "health-draining", request: request("GET", "/ragflow/healthz", "", ""), draining: true},
		{name: "run-success", request: run, outcome: succeeded},
		{name: "run-token-in-path", request: request("POST", "/ragflow/acme-token/run", "", bodyOf("x", "python")), outcome: succeeded},
		{name: "run-failed", request: run, outcome: of(sdk.StatusFailed, 3)},
		{name: "run-timeout", request: run, outcome: of(sdk.StatusTimeout, -1)},
		{name: "run-out-of-memory", request: run, outcome: of(sdk.StatusOutOfMemory, -1)},
		{name: "run-blocked", request: run, outcome: of(sdk.StatusBlocked, -1)},
		{name: "run-cancelled", request: run, outcome: of(sdk.StatusCancelled, 130)},
		{name: "run-no-result", request: request("POST", "/ragflow/run", bearer, bodyOf("x", "nodejs")), outcome: of(sdk.StatusSucceeded, 0)},
		{name: "run-busy", request: run, err: sdk.Errorf(sdk.CodeQuotaExceeded, "Nothing is free.")},
		{name: "run-unavailable", request: run, err: sdk.Errorf(sdk.CodeUnavailable, "The provider has ended.")},
		{name: "run-not-allowed", request: run, err: sdk.Errorf(sdk.CodeNotAllowed, "Not this provider.")},
		{name: "run-no-token", request: request("POST", "/ragflow/run", "", bodyOf("x", "python"))},
		{name: "run-invalid", request: request("POST", "/ragflow/run", bearer, `{"language":"php"}`)},
		{name: "run-wrong-method", request: request("GET", "/ragflow/run", bearer, "")},
		{name: "no-such-route", request: request("GET", "/ragflow/a/b/c", bearer, "")},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, frontdoor.Settings{})
			s.outcome, s.err, s.draining = test.outcome, test.err, test.draining
			answer := changing.ReplaceAllString(s.exchange(t, test.request), "")
			answer = requestID.ReplaceAllString(answer, `"request_id":"…"`)
			// The identifier's length is always the same, so Content-Length is.
			text := strings.ReplaceAll(test.request+"\n\n"+answer+"\n", "\r\n", "\n")
			golden.Assert(t, text, test.name+".golden")
			_, body, _ := strings.Cut(answer, "\r\n\r\n")
			assert.Check(t, json.Valid([]byte(body)), body)
		})
	}
}

// A route that is new needs a golden file with a request, and nothing here.
func TestEachRouteHasATranscript(t *testing.T) {
	operations := serve(t, frontdoor.Settings{}).server.Operations(Name)
	assert.Assert(t, is.Len(operations, 8))
	missing, err := frontdoortest.Untranscribed(operations, "/ragflow")
	assert.NilError(t, err)
	assert.Equal(t, strings.Join(missing, "\n"), "")
}

func TestARunIsOneShotOfTheDoor(t *testing.T) {
	s := serve(t, frontdoor.Settings{Provider: "named", Timeout: 3 * time.Second, Wait: 2 * time.Second})
	s.outcome = instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusSucceeded}}
	assert.Check(t, is.Contains(s.exchange(t, request("POST", "/ragflow/run", bearer, bodyOf("x = 1", "nodejs"))), "200 OK"))
	keep := false
	assert.DeepEqual(t, s.asked, instance.RunRequest{
		ExecuteRequest: instance.ExecuteRequest{Code: "x = 1", Language: string(sdk.JavaScript), Arguments: json.RawMessage(`{}`), Timeout: 3 * time.Second, Wait: 2 * time.Second},
		Provider:       "named", Keep: &keep, FrontDoor: Name,
	})
}

func TestWhoAsks(t *testing.T) {
	const own, rivals = "X-Sandbox-Token: acme-token\r\n", "X-Sandbox-Token: rival-token\r\n"
	for _, test := range []struct{ name, usual, target, headers, who string }{
		{"bearer", "", "/ragflow/run", bearer, "acme"},
		{"RAGFlow's own header", "", "/ragflow/run", own, "acme"},
		{"in the path", "", "/ragflow/acme-token/run", "", "acme"},
		{"the same in all places", "", "/ragflow/acme-token/run", bearer + own, "acme"},
		{"two headers that differ", "", "/ragflow/run", bearer + rivals, ""},
		{"the path differs", "", "/ragflow/rival-token/run", bearer, ""},
		{"two fields of one header", "", "/ragflow/run", own + rivals, ""},
		{"a wrong one", "", "/ragflow/run", "X-Sandbox-Token: x\r\n", ""},
		{"a wrong one in the path", "", "/ragflow/x/run", "", ""},
		{"none", "", "/ragflow/run", "", ""},
		{"none, and there is a tenant for that", "rival", "/ragflow/run", "", "rival"},
		{"none, with a query", "rival", "/ragflow/run?a=/b/c", "", ""},
		{"a wrong one is not none", "rival", "/ragflow/run", "X-Sandbox-Token: x\r\n", ""},
		{"an empty one is not none", "rival", "/ragflow/run", "X-Sandbox-Token:\r\n", ""},
		{"two that differ are not none", "rival", "/ragflow/run", bearer + rivals, ""},
		{"one who is known is himself", "rival", "/ragflow/run", bearer, "acme"},
		{"none, and a tenant who is gone", "gone", "/ragflow/run", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, frontdoor.Settings{Tenant: test.usual})
			s.outcome = instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusSucceeded}}
			answer := s.exchange(t, request("POST", test.target, test.headers, bodyOf("x", "python")))
			assert.Equal(t, s.who.Name, test.who, answer)
			if test.who != "" {
				assert.Check(t, is.Contains(answer, "200 OK"))
				return
			}
			assert.Equal(t, s.runs, 0, "nothing ran")
			if !strings.Contains(test.target, "?") { // which is refused as a parameter that nobody knows
				assert.Check(t, is.Contains(answer, "401 Unauthorized"))
				assert.Check(t, is.Contains(answer, "SB011"))
			}
		})
	}
}

// Where a tenant is named for requests without a token, any page that a browser on the machine shows
// could run code.
func TestNoPageRunsCodeWithoutAToken(t *testing.T) {
	body := bodyOf("x", "python")
	raw := func(fields string) string {
		return fmt.Sprintf("POST /ragflow/run HTTP/1.1\r\nHost: broker\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s", len(body), fields, body)
	}
	const jsonType = "Content-Type: application/json\r\n"
	for name, test := range map[string]struct {
		fields string
		runs   bool
	}{
		"RAGFlow's client":                 {jsonType, true},
		"JSON with its encoding":           {"Content-Type: application/json; charset=utf-8\r\n", true},
		"a page of another site":           {jsonType + "Origin: https://evil.example\r\n", false},
		"a page without an origin":         {jsonType + "Origin: null\r\n", false},
		"a page by a name that leads here": {jsonType + "Origin: http://broker\r\n", false},
		"a browser that says whence":       {jsonType + "Sec-Fetch-Site: cross-site\r\n", false},
		"a form":                           {"Content-Type: text/plain\r\n", false},
		"another form":                     {"Content-Type: application/x-www-form-urlencoded\r\n", false},
		"a body of no type":                {"", false},
		"a body of two types":              {jsonType + "Content-Type: text/plain\r\n", false},
		"a page with a token":              {jsonType + "Origin: https://good.example\r\n" + bearer, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, frontdoor.Settings{Tenant: "rival"})
			s.outcome = instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusSucceeded}}
			answer := s.exchange(t, raw(test.fields))
			if test.runs {
				assert.Check(t, is.Contains(answer, "200 OK"))
				return
			}
			assert.Equal(t, s.runs, 0, answer)
			assert.Check(t, is.Contains(answer, "SB012"), answer)
		})
	}
}

func TestHealthIsWhetherARunCouldBeServed(t *testing.T) {
	for _, test := range []struct {
		name, label string
		usual, all  []instance.ProviderInfo
		draining    bool
		status      int
	}{
		{"ready", "", []instance.ProviderInfo{provider("p", true)}, nil, false, 200},
		{"one of two", "", []instance.ProviderInfo{provider("p", false), provider("q", true)}, nil, false, 200},
		{"none is ready", "", []instance.ProviderInfo{provider("p", false)}, nil, false, 503},
		{"none", "", nil, nil, false, 503},
		{"draining", "", []instance.ProviderInfo{provider("p", true)}, nil, true, 503},
		{"the named one", "q", []instance.ProviderInfo{provider("p", false)}, []instance.ProviderInfo{provider("p", false), provider("q", true)}, false, 200},
		{"another than the named one", "q", []instance.ProviderInfo{provider("p", true)}, []instance.ProviderInfo{provider("p", true), provider("q", false)}, false, 503},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, frontdoor.Settings{Provider: test.label})
			s.usual, s.all, s.draining = test.usual, test.all, test.draining
			for _, target := range []string{"/ragflow/healthz", "/ragflow/", "/ragflow", "/ragflow/any/healthz"} {
				answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(s.exchange(t, request("GET", target, "", "")))), nil)
				assert.NilError(t, err)
				assert.Check(t, is.Equal(answer.StatusCode, test.status), target)
				assert.Check(t, answer.Body.Close())
			}
		})
	}
}

func TestAClosedDoorIsNowhere(t *testing.T) {
	s := serve(t, frontdoor.Settings{})
	s.door.Apply(nil)
	assert.Check(t, is.Contains(s.exchange(t, request("GET", "/ragflow/healthz", "", "")), "404"))
	s.door.Apply(&frontdoor.Settings{Path: "/elsewhere"})
	assert.Check(t, is.Contains(s.exchange(t, request("GET", "/elsewhere/healthz", "", "")), "200"))
	assert.Check(t, is.Contains(s.exchange(t, request("GET", "/ragflow/healthz", "", "")), "404"))
}

// Whatever the path is, only one with a token of a tenant runs something, as that one.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"run", "acme-token/run", "rival-token/run", "x/run", "//run", "acme-token/../run", "%61cme-token/run", "run?token=acme-token", "acme-token/run/", "run/run"} {
		f.Add(seed)
	}
	s := serve(f, frontdoor.Settings{})
	s.outcome = instance.Execution{Result: sdk.ExecuteResult{Status: sdk.StatusSucceeded}}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			t.Skip("no request line")
		}
		before := s.runs
		answer := s.exchange(t, request("POST", "/ragflow/"+path, "", bodyOf("x", "python")))
		assert.Assert(t, !bytes.HasPrefix([]byte(answer), []byte("HTTP/1.1 5")), answer)
		if s.runs != before {
			assert.Equal(t, strings.Split(path, "/")[0], s.who.Name+"-token", path)
		}
	})
}
