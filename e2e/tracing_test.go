package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/tracing/otlptest"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

func tracingBlock(endpoint, more string) string {
	return fmt.Sprintf("tracing {\n  endpoint = %q\n  headers = { X-Key = \"secret-key-of-the-receiver\" }\n%s}\n", endpoint, more)
}

// spanNamed waits until the receiver has a span of the caller's trace.
func spanNamed(t *testing.T, r *otlptest.Receiver, name string) (found *tracev1.Span) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var names []string
		for _, s := range r.Taken() {
			names = append(names, s.GetName())
			if s.GetName() == name && fmt.Sprintf("%x", s.GetTraceId()) == theirTrace {
				found = s
				return poll.Success()
			}
		}
		return poll.Continue("no %q among %q", name, names)
	}, poll.WithTimeout(time.Minute))
	return found
}

const (
	theirTrace  = "0af7651916cd43dd8448eb211c80319c"
	theirParent = "00-" + theirTrace + "-b7ad6b7169203331-00"
)

func TestATraceGoesFromTheRequestToThePlugin(t *testing.T) {
	t.Parallel()
	r := otlptest.New(t)
	const mock = "provider \"mock\" {}\n"
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + mock + tracingBlock(r.Endpoint(), ""), Plugins: map[string]string{"mock": mockPlugin},
	})
	ask := func(token string) harness.Answer {
		return b.DoWith(http.MethodPost, "/api/v1/execute", token, map[string]any{"language": "mock", "code": `{"echo": true, "stdout": "private-output"}`}, map[string]string{"traceparent": theirParent})
	}
	answer := ask(harness.Token)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	out := strings.Split(answer.Header.Get("traceparent"), "-")
	assert.Equal(t, len(out), 4, "%q", answer.Header)
	assert.Equal(t, out[1], theirTrace)
	assert.Equal(t, out[3], "01")
	var executed struct {
		Result struct {
			TraceParent string `json:"trace_parent"`
		}
	}
	assert.NilError(t, json.Unmarshal(answer.Body, &executed))

	root := spanNamed(t, r, "POST /api/v1/execute")
	assert.Equal(t, fmt.Sprintf("%x", root.GetSpanId()), out[2])
	assert.Equal(t, fmt.Sprintf("%x", root.GetParentSpanId()), "b7ad6b7169203331")
	parents := map[string]*tracev1.Span{}
	for _, name := range []string{"admission", "creation", "execution"} {
		parents[name] = spanNamed(t, r, name)
		assert.DeepEqual(t, parents[name].GetParentSpanId(), root.GetSpanId())
	}
	create, execute := spanNamed(t, r, "plugin Create"), spanNamed(t, r, "plugin Execute")
	assert.DeepEqual(t, create.GetParentSpanId(), parents["creation"].GetSpanId())
	assert.DeepEqual(t, execute.GetParentSpanId(), parents["execution"].GetSpanId())
	assert.Equal(t, executed.Result.TraceParent, fmt.Sprintf("00-%s-%x-01", theirTrace, execute.GetSpanId()), "the plugin knows the span of its call")

	stranger := ask("no-token")
	assert.Equal(t, stranger.Status, http.StatusUnauthorized)
	assert.Equal(t, stranger.Header.Get("traceparent"), "")
	for _, s := range r.Taken() {
		for _, private := range []string{"acme", "private-output", "secret-key", harness.Token} {
			assert.Check(t, !strings.Contains(s.String(), private), "%s is in %s", private, s)
		}
	}
	assert.Check(t, !strings.Contains(b.Log(), "secret-key"))

	// A reload: to another receiver, and then to none.
	second := otlptest.New(t)
	config, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	before, _, _ := strings.Cut(string(config), "tracing {")
	write := func(block string) {
		assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(before+block), 0o644))
	}
	write(tracingBlock(second.Endpoint(), "  name_tenants = true\n"))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		ask(harness.Token)
		if len(second.Taken()) == 0 {
			return poll.Continue("nothing came to the second receiver")
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(500*time.Millisecond))
	assert.Check(t, strings.Contains(spanNamed(t, second, "POST /api/v1/execute").String(), "acme"))
	write("")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if ask(harness.Token).Header.Get("traceparent") != "" {
			return poll.Continue("tracing is not off")
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
}
