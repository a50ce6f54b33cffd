package rest_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	v1 "github.com/sandbox-broker/sandbox-broker/broker/api/v1"
	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

type greeting struct {
	Name name `json:"name" minLength:"1"`
}

// name counts how often one is read from JSON.
type name string

var namesRead atomic.Int64

func (n *name) UnmarshalJSON(text []byte) error {
	namesRead.Add(1)
	return json.Unmarshal(text, (*string)(n))
}

// greeter is the other system's API. It has an effect at a provider of sandboxes.
type greeter struct {
	sandboxes sdk.Provider
	// lookedUp counts the look-ups of tokens.
	lookedUp atomic.Int64
}

// add adds it to a server: with its own prefix, its own header for the
// token and its own form of errors.
func (g *greeter) add(s *rest.Server) *rest.API {
	a := s.NewAPI(rest.APIOptions{
		Prefix: "/greeter",
		Tokens: func(h rest.Header) []string {
			g.lookedUp.Add(1)
			return h.Values("Greeter-Key")
		},
		Problem: func(err error, requestID string) rest.Problem {
			r := rest.RefusalOf(err, requestID)
			return r.As("application/json", map[string]any{"ok": false, "error_code": r.Code})
		},
	})
	rest.Register(a, rest.Operation{Method: http.MethodPost, Path: "/greeter/hello", ID: "hello"}, g.hello)
	rest.Stream(a, rest.Operation{Method: http.MethodPost, Path: "/greeter/lines", ID: "lines"}, lines)
	return a
}

// hello ends a sandbox, and answers with what the broker knows of the caller.
func (g *greeter) hello(ctx context.Context, c rest.Call[greeting]) (int, map[string]string, error) {
	if err := g.sandboxes.Destroy(ctx, "box-1"); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]string{"hello": string(c.Body.Name), "tenant": c.Tenant.Name, "audited": origin.Of(ctx).Tenant}, nil
}

// sandboxes can end them, and nothing else.
type sandboxes struct{ *wire.Client }

func (sandboxes) Destroy(context.Context, string) error      { return nil }
func (sandboxes) Explain(_ context.Context, err error) error { return err }

// auditLines are those that an effect begins with.
func auditLines(t *testing.T, dir string) (lines []audit.Effect) {
	t.Helper()
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	for _, segment := range segments {
		r, err := audit.OpenReader(segment.Path, segment.Compressed)
		assert.NilError(t, err)
		text, err := r.Next()
		for ; err == nil; text, err = r.Next() {
			var line struct {
				Event audit.Event `json:"event"`
				audit.Effect
			}
			assert.NilError(t, json.Unmarshal(text, &line))
			if line.Event == audit.EventBegin {
				lines = append(lines, line.Effect)
			}
		}
		assert.ErrorIs(t, err, io.EOF)
		assert.NilError(t, r.Close())
	}
	return lines
}

// lines streams in a framing of its own.
func lines(w http.ResponseWriter, _ *http.Request, c rest.Call[greeting]) error {
	for i := range 3 {
		if _, err := fmt.Fprintf(w, "{\"line\":%d,\"name\":%q}\n", i, c.Body.Name); err != nil {
			return err
		}
	}
	return nil
}

// rates refuses a tenant's requests when it has used its number.
type rates struct{ left atomic.Int64 }

func (r *rates) Request(string) (remaining, limit float64, err error) {
	left := r.left.Add(-1)
	if left < 0 {
		err = sdk.Errorf(sdk.CodeQuotaExceeded, "too many requests")
	}
	return float64(max(left, 0)), 10, err
}

// meter counts by route and status.
type meter chan string

func (m meter) Request(_ context.Context, method, route string, status int, code sdk.Code, _ time.Duration) {
	m <- fmt.Sprint(method, " ", route, " ", status, " ", code)
}

func TestASecondAPIStandsBesideTheBrokersOwn(t *testing.T) {
	counted, limit := make(meter, 100), &rates{}
	limit.left.Store(100)
	s := rest.NewServer(rest.Options{
		Tenants: tenant.NewDirectory([]tenant.Credentials{{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}}}),
		Rates:   limit, Meter: counted, Logger: hclog.NewNullLogger(),
		Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	own, err := v1.Add(s, v1.Options{PreviewHosts: &atomic.Pointer[v1.PreviewHosts]{}})
	assert.NilError(t, err)
	dir := filepath.Join(scratch.Dir(t), "audit")
	log, err := audit.Open(audit.Options{Dir: dir, Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, log.Close(context.Background())) })
	recorded, err := audited.NewRecorder("box", log).Provider(sandboxes{})
	assert.NilError(t, err)
	g := &greeter{sandboxes: recorded}
	greeter := g.add(s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		assert.Check(t, s.Shutdown(context.Background()))
		assert.Check(t, <-served)
	})
	const key, plain, problem = "Greeter-Key", "application/json", rest.ProblemType
	for _, test := range []struct {
		name, path, header, body string
		status                   int
		mediaType, answer        string
		counted                  string
	}{
		{"it answers, and knows the tenant", "/greeter/hello", key, `{"name":"x"}`, 200, plain, `{"audited":"acme","hello":"x","tenant":"acme"}`, "POST /greeter/hello 200 "},
		{"it streams in its own framing", "/greeter/lines", key, `{"name":"x"}`, 200, "text/plain; charset=utf-8", "{\"line\":0,\"name\":\"x\"}\n{\"line\":1,\"name\":\"x\"}\n{\"line\":2,\"name\":\"x\"}\n", "POST /greeter/lines 200 "},
		{"its token is nowhere else", "/greeter/hello", "X-API-Key", `{"name":"x"}`, 401, plain, `{"error_code":"SB011","ok":false}`, "POST /greeter/hello 401 SB011"},
		{"nor is the other API's here", "/api/v1/execute", key, `{}`, 401, problem, "SB011", "POST /api/v1/execute 401 SB011"},
		{"bodies are read strictly", "/greeter/hello", key, `{"name":"x","age":1}`, 422, plain, `{"error_code":"SB010","ok":false}`, "POST /greeter/hello 422 SB010"},
		{"bodies have the same limit", "/greeter/hello", key, strings.Repeat(" ", 64<<10+1), 413, plain, `{"error_code":"SB010","ok":false}`, "POST  413 SB010"},
		{"what leads nowhere is refused in its form", "/greeter/bye", key, "", 404, plain, `{"error_code":"SB013","ok":false}`, "POST  404 SB013"},
		{"and beside it in the other's", "/greeters", key, "", 404, problem, "SB013", "POST  404 SB013"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, mediaType, text := post(t, client, "http://"+listener.Addr().String()+test.path, test.header, test.body)
			assert.Equal(t, status, test.status, text)
			assert.Equal(t, mediaType, test.mediaType)
			assert.Assert(t, cmp.Contains(text, test.answer))
			assert.Equal(t, <-counted, test.counted)
		})
	}
	t.Run("its effects are in the audit log, with who asked", func(t *testing.T) {
		lines := auditLines(t, dir)
		assert.Equal(t, len(lines), 1, "the one request that was answered")
		line := lines[0]
		assert.Equal(t, line.Operation, audited.OpDestroy)
		assert.Equal(t, line.Tenant+" "+line.Provider+" "+line.ProviderInstance, "acme box box-1")
		assert.Assert(t, line.RequestID != "" && line.Remote != "")
	})
	t.Run("a token is looked up once, and a body read once", func(t *testing.T) {
		for _, path := range []string{"/greeter/hello", "/greeter/lines"} {
			looked, read := g.lookedUp.Load(), namesRead.Load()
			status, _, text := post(t, client, "http://"+listener.Addr().String()+path, key, `{"name":"x"}`)
			assert.Equal(t, status, http.StatusOK, text)
			assert.Equal(t, g.lookedUp.Load()-looked, int64(1), path)
			assert.Equal(t, namesRead.Load()-read, int64(1), path)
		}
	})
	t.Run("its requests count against the tenant's quota", func(t *testing.T) {
		limit.left.Store(0)
		status, _, text := post(t, client, "http://"+listener.Addr().String()+"/greeter/hello", key, `{"name":"x"}`)
		assert.Equal(t, status, http.StatusTooManyRequests)
		assert.Assert(t, cmp.Contains(text, "SB008"))
	})
	t.Run("each has its own document", func(t *testing.T) {
		theirs, err := greeter.Document()
		assert.NilError(t, err)
		ours, err := own.Document()
		assert.NilError(t, err)
		assert.Assert(t, strings.Contains(string(theirs), "/greeter/hello") && !strings.Contains(string(theirs), "/api/v1"))
		assert.Assert(t, !strings.Contains(string(ours), "/greeter"))
	})
}

func post(t *testing.T, client *http.Client, url, header, body string) (status int, mediaType, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	assert.NilError(t, err)
	req.Header.Set(header, "acme-token")
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(answer)
}
