package e2bhttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
)

func TestAnErrorIsReadWhoeverGivesIt(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   e2bhttp.Error
	}{
		"the control API":         {503, map[string]string{"X-E2B-Trace-ID": "t"}, `{"code":503,"message":"no room","error_code":"sandbox_capacity_unavailable"}`, e2bhttp.Error{Status: 503, Code: "sandbox_capacity_unavailable", Message: "no room", TraceID: "t", Own: true}},
		"Connect":                 {404, nil, `{"code":"not_found","message":"no process"}`, e2bhttp.Error{Status: 404, Code: "not_found", Message: "no process"}},
		"the proxy":               {502, nil, `{"sandboxId":"i1","message":"not found","code":502}`, e2bhttp.Error{Status: 502, Message: "not found", Proxy: true}},
		"the proxy, about a port": {502, nil, `{"sandboxId":"i1","message":"closed","port":80,"code":502}`, e2bhttp.Error{Status: 502, Message: "closed", Proxy: true, Port: 80}},
		"a rate limit":            {429, map[string]string{"Retry-After": "7"}, `{"code":429,"message":"slow"}`, e2bhttp.Error{Status: 429, Message: "slow", RetryAfter: 7 * time.Second, Own: true}},
		"a limit without a time":  {429, map[string]string{"Retry-After": "soon"}, `{"code":429,"message":"full"}`, e2bhttp.Error{Status: 429, Message: "full", Own: true}},
		"text":                    {504, nil, "upstream\nrequest timeout", e2bhttp.Error{Status: 504, Message: "upstream request timeout", NotJSON: true}},
		"a page":                  {502, nil, "<html><body>Bad", e2bhttp.Error{Status: 502, NotJSON: true}},
		"nothing":                 {415, nil, "", e2bhttp.Error{Status: 415, NotJSON: true}},
		"a form that is wrong":    {422, nil, `{"detail":[{"msg":"code"}]}`, e2bhttp.Error{Status: 422, Message: `[{"msg":"code"}]`}},
		"a redirect":              {302, map[string]string{"Location": "/elsewhere"}, "", e2bhttp.Error{Status: 302, NotJSON: true}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range c.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			client := server.Client()
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			_, err := e2bhttp.Endpoint{Base: server.URL, Client: client}.Call(t.Context(), http.MethodGet, "/", nil, nil)
			got, ok := errors.AsType[*e2bhttp.Error](err)
			assert.Assert(t, ok, "%v", err)
			assert.DeepEqual(t, *got, c.want)
		})
	}
}

func TestALongMessageIsCut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("ü", 10_000), http.StatusInternalServerError)
	}))
	defer server.Close()
	_, err := e2bhttp.Endpoint{Base: server.URL, Client: server.Client()}.Call(t.Context(), http.MethodGet, "/", nil, nil)
	assert.Assert(t, len(err.Error()) < 600, "%d", len(err.Error()))
}
