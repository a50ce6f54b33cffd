package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/otlptest"
)

const (
	theirTrace  = "0af7651916cd43dd8448eb211c80319c"
	theirParent = "00-" + theirTrace + "-b7ad6b7169203331-01"
)

// startTraced starts a server all of whose requests are traced. The function ends the
// tracing and returns the spans.
func startTraced(t *testing.T, options ...func(*api.Options, *fixture)) (*fixture, func() []*tracev1.Span) {
	t.Helper()
	r, all := otlptest.New(t), tracing.New(hclog.NewNullLogger(), "1.0")
	all.Apply(tracing.Settings{Endpoint: r.Endpoint(), SampleRatio: 1})
	t.Cleanup(all.Close)
	f := start(t, append(options, func(o *api.Options, _ *fixture) { o.Tracer = all })...)
	return f, func() []*tracev1.Span {
		all.Close()
		return r.Taken()
	}
}

func requestSpans(spans []*tracev1.Span) (told []string) {
	for _, s := range spans {
		if s.GetKind() == tracev1.Span_SPAN_KIND_SERVER {
			status, code := "", ""
			for _, kv := range s.GetAttributes() {
				switch kv.GetKey() {
				case "http.response.status_code":
					status = fmt.Sprint(kv.GetValue().GetIntValue())
				case "sandbox.code":
					code = kv.GetValue().GetStringValue()
				}
			}
			told = append(told, strings.TrimSpace(s.GetName()+" "+status+" "+code))
		}
	}
	return told
}

func TestAnswersNameTheSpanOfTheirRequest(t *testing.T) {
	f, end := startTraced(t)
	for name, headers := range map[string][]string{
		"a plain answer": {"traceparent: " + theirParent},
		"a stream":       {"traceparent: " + theirParent, "Accept: text/event-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := f.do(http.MethodPost, "/api/v1/execute", `{"language": "python", "code": "secret-code"}`, headers...).wants(http.StatusOK)
			assert.Equal(t, len(resp.Header.Values("traceparent")), 1)
			assert.Assert(t, strings.HasPrefix(resp.Header.Get("traceparent"), "00-"+theirTrace+"-"))
			assert.Assert(t, resp.Header.Get("traceparent") != theirParent)
		})
	}
	f.do(http.MethodGet, "/api/v1/instances/acme:secret-session:aaaaaaaaaaaaaaaaaaaa", "").wants(http.StatusNotFound)
	spans := end()
	assert.DeepEqual(t, requestSpans(spans), []string{
		"POST /api/v1/execute 200", "POST /api/v1/execute 200", "GET /api/v1/instances/{id} 404 SB013",
	})
	for _, s := range spans {
		assert.Check(t, !strings.Contains(s.String(), "secret") && !strings.Contains(s.String(), "acme"), "%s", s)
	}
}

func TestAStrangersTraceIsNotRead(t *testing.T) {
	f, end := startTraced(t)
	for name, headers := range map[string][]string{
		"who has another token":    {"Authorization: Bearer wrong", "traceparent: " + theirParent},
		"who asks for no such API": {"traceparent: " + theirParent},
	} {
		t.Run(name, func(t *testing.T) {
			path := "/api/v1/providers"
			if len(headers) == 1 {
				path = "/nowhere"
			}
			resp := f.do(http.MethodGet, path, "", headers...)
			assert.Assert(t, resp.StatusCode >= 400)
			assert.Equal(t, resp.Header.Get("traceparent"), "")
		})
	}
	assert.Equal(t, len(end()), 0)
}

func TestATraceThatIsNoneIsLeftOut(t *testing.T) {
	f, _ := startTraced(t)
	for name, sent := range map[string]string{"garbage": "garbage", "zeros": "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", "long": strings.Repeat("0", 8000)} {
		t.Run(name, func(t *testing.T) {
			resp := f.do(http.MethodGet, "/api/v1/providers", "", "traceparent: "+sent).wants(http.StatusOK)
			got := strings.Split(resp.Header.Get("traceparent"), "-")
			assert.Assert(t, len(got) == 4 && got[1] != theirTrace && got[1] != strings.Repeat("0", 32), "%q", got)
		})
	}
	req := f.request(t.Context(), http.MethodGet, "/api/v1/providers", "")
	req.Header["Traceparent"] = []string{theirParent, theirParent}
	resp, err := f.client.Do(req)
	assert.NilError(t, err)
	assert.NilError(t, resp.Body.Close())
	assert.Assert(t, !strings.Contains(resp.Header.Get("traceparent"), theirTrace), "of two, neither is believed")
}
