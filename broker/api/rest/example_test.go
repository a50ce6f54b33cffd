package rest_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	v1 "github.com/sandbox-broker/sandbox-broker/broker/api/v1"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type greeting struct {
	Name string `json:"name" minLength:"1"`
}

// addGreeter adds an API of another system: with its own prefix, its own header for the
// token and its own form of errors.
func addGreeter(s *rest.Server) *rest.API {
	a := s.NewAPI(rest.APIOptions{
		Prefix: "/greeter",
		Tokens: func(h rest.Header) []string { return h.Values("Greeter-Key") },
		Problem: func(err error, requestID string) rest.Problem {
			r := rest.RefusalOf(err, requestID)
			return r.As("application/json", map[string]any{"ok": false, "error_code": r.Code})
		},
	})
	rest.Register(a, rest.Operation{Method: http.MethodPost, Path: "/greeter/hello", ID: "hello"}, hello)
	rest.Stream(a, rest.Operation{Method: http.MethodPost, Path: "/greeter/lines", ID: "lines"}, lines)
	return a
}

// hello answers with what the broker knows of the caller.
func hello(ctx context.Context, c rest.Call[greeting]) (int, map[string]string, error) {
	return http.StatusOK, map[string]string{"hello": c.Body.Name, "tenant": c.Tenant.Name, "audited": origin.Of(ctx).Tenant}, nil
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

func (m meter) Request(method, route string, status int, code sdk.Code, _ time.Duration) {
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
	greeter := addGreeter(s)
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
