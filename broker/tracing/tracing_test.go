package tracing_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/tracing"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/otlptest"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/span"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func begin(t *testing.T, s tracing.Settings) (*tracing.Tracing, *logged) {
	t.Helper()
	log := &logged{}
	all := tracing.New(hclog.New(&hclog.LoggerOptions{Output: log}), "1.0")
	all.Apply(s)
	return all, log
}

// request is one with a part, as the API makes them.
func request(ctx context.Context, all *tracing.Tracing, traceParent string) trace.Span {
	ctx = all.Begin(ctx, traceParent, time.Now().Add(-time.Second), "POST /api/v1/execute", "acme", attribute.String("a", "b"))
	root := trace.SpanFromContext(ctx)
	_, part := span.StartCall(ctx, "plugin Execute", span.Provider.String("here"))
	span.End(part, sdk.CodeUnavailable)
	root.End()
	return root
}

func named(spans []*tracev1.Span, name string) (found []*tracev1.Span) {
	for _, s := range spans {
		if s.GetName() == name {
			found = append(found, s)
		}
	}
	return found
}

func words(s *tracev1.Span) map[string]string {
	all := map[string]string{}
	for _, kv := range s.GetAttributes() {
		all[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	return all
}

const (
	theirs  = "0af7651916cd43dd8448eb211c80319c"
	sampled = "00-" + theirs + "-b7ad6b7169203331-01"
	dropped = "00-" + theirs + "-b7ad6b7169203331-00"
)

func TestARequestAndItsPartsAreSent(t *testing.T) {
	r := otlptest.New(t)
	all, _ := begin(t, tracing.Settings{Endpoint: r.Endpoint(), SampleRatio: 1, Headers: map[string]string{"X-Key": "secret-key"}, NameTenants: true})
	request(t.Context(), all, dropped)
	all.Close()

	spans := r.Taken()
	assert.Equal(t, len(spans), 2)
	root, part := named(spans, "POST /api/v1/execute")[0], named(spans, "plugin Execute")[0]
	assert.Equal(t, fmt.Sprintf("%x", root.GetTraceId()), theirs)
	assert.Equal(t, fmt.Sprintf("%x", root.GetParentSpanId()), "b7ad6b7169203331")
	assert.DeepEqual(t, part.GetParentSpanId(), root.GetSpanId())
	assert.DeepEqual(t, part.GetTraceId(), root.GetTraceId())
	assert.Equal(t, root.GetKind(), tracev1.Span_SPAN_KIND_SERVER)
	assert.Equal(t, part.GetKind(), tracev1.Span_SPAN_KIND_CLIENT)
	assert.Assert(t, root.GetEndTimeUnixNano()-root.GetStartTimeUnixNano() >= uint64(time.Second))
	assert.DeepEqual(t, words(root), map[string]string{"a": "b", "sandbox.tenant": "acme"})
	assert.DeepEqual(t, words(part), map[string]string{"sandbox.provider": "here", "sandbox.code": "SB009"})
	assert.Equal(t, part.GetStatus().GetCode(), tracev1.Status_STATUS_CODE_ERROR)
	assert.Equal(t, r.Asked()[0].Get("X-Key"), "secret-key")
	ended, sent, failed := all.Counts()
	assert.DeepEqual(t, []uint64{ended, sent, failed}, []uint64{2, 2, 0})
}

func TestOffItDoesNothing(t *testing.T) {
	all, log := begin(t, tracing.Settings{})
	defer all.Close()
	ctx := all.Begin(t.Context(), sampled, time.Now(), "GET /", "acme")
	assert.Equal(t, ctx, t.Context())
	inner, part := span.Start(ctx, "x")
	assert.Equal(t, inner, ctx)
	assert.Assert(t, !part.SpanContext().IsValid())
	span.End(part, sdk.CodeInternal)
	ended, _, _ := all.Counts()
	assert.Equal(t, ended, uint64(0))
	assert.Equal(t, log.String(), "")
}

// Whoever calls chooses the ID of the trace and says whether it is sampled. Neither may
// have more sent than the operator wants.
func TestCallersCannotHaveMoreSentThanTheRatio(t *testing.T) {
	r := otlptest.New(t)
	none, _ := begin(t, tracing.Settings{Endpoint: r.Endpoint(), SampleRatio: 0})
	for i := range 200 {
		s := request(t.Context(), none, fmt.Sprintf("00-%032x-b7ad6b7169203331-01", i+1))
		assert.Assert(t, s.SpanContext().IsValid() && !s.SpanContext().IsSampled())
	}
	none.Close()
	assert.Equal(t, len(r.Asked()), 0)

	// One ID, which a sampler by ID would always take: about half of the requests are.
	half, _ := begin(t, tracing.Settings{Endpoint: r.Endpoint(), SampleRatio: 0.5})
	n := 0
	for range 1000 {
		if request(t.Context(), half, "00-00000000000000000000000000000001-b7ad6b7169203331-01").SpanContext().IsSampled() {
			n++
		}
	}
	half.Close()
	assert.Assert(t, n > 350 && n < 650, "%d of 1000", n) // nine standard deviations
}

func TestCallersAreFollowedWhereTheOperatorWantsThat(t *testing.T) {
	r := otlptest.New(t)
	all, _ := begin(t, tracing.Settings{Endpoint: r.Endpoint(), FollowCallers: true})
	assert.Assert(t, request(t.Context(), all, sampled).SpanContext().IsSampled())
	assert.Assert(t, !request(t.Context(), all, dropped).SpanContext().IsSampled())
	assert.Assert(t, !request(t.Context(), all, "").SpanContext().IsSampled())
	all.Close()
	assert.Equal(t, len(r.Taken()), 2)
	_, named := words(r.Taken()[0])["sandbox.tenant"]
	assert.Assert(t, !named)
}

func TestAReceiverThatHangsCostsNobodyAnything(t *testing.T) {
	r := otlptest.New(t)
	hang := make(chan struct{})
	defer close(hang)
	r.Answer(0, hang)
	all, log := begin(t, tracing.Settings{Endpoint: r.Endpoint(), SampleRatio: 1})
	began := time.Now()
	for range 10_000 { // more than there is room for
		request(t.Context(), all, "")
	}
	took := time.Since(began)
	ended, _, _ := all.Counts()
	assert.Equal(t, ended, uint64(20_000))
	began = time.Now()
	all.Close()
	assert.Assert(t, took < time.Minute, "%s for 10000 requests", took) // one hangs for as long
	assert.Assert(t, time.Since(began) < time.Minute, "the end is bounded")
	assert.Assert(t, strings.Count(log.String(), "\n") <= 2, log.String())
}

func TestAFailureIsToldOnceAndWithoutSecrets(t *testing.T) {
	r := otlptest.New(t)
	r.Answer(http.StatusUnauthorized, nil)
	all, log := begin(t, tracing.Settings{Endpoint: r.Endpoint(), SampleRatio: 1, Headers: map[string]string{"X-Key": "secret-key-of-the-receiver"}})
	defer all.Close()
	failed := func(n uint64) poll.Check {
		return func(poll.LogT) poll.Result {
			if _, _, failed := all.Counts(); failed < n {
				return poll.Continue("%d have failed", failed)
			}
			return poll.Success()
		}
	}
	request(t.Context(), all, "")
	poll.WaitOn(t, failed(2), poll.WithTimeout(time.Minute))
	request(t.Context(), all, "")
	poll.WaitOn(t, failed(4), poll.WithTimeout(time.Minute))
	assert.Equal(t, strings.Count(log.String(), "traces are not taken"), 1, log.String())
	assert.Assert(t, is.Contains(log.String(), "401"))
	assert.Assert(t, !strings.Contains(log.String(), "secret-key"), log.String())
	r.Answer(0, nil)
	request(t.Context(), all, "")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if !strings.Contains(log.String(), "traces are taken again") {
			return poll.Continue("%s", log.String())
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
}

func TestNobodyElseGetsTheHeaders(t *testing.T) {
	elsewhere := otlptest.New(t)
	r := httptest.NewServer(http.RedirectHandler(elsewhere.Endpoint(), http.StatusTemporaryRedirect))
	defer r.Close()
	all, _ := begin(t, tracing.Settings{Endpoint: r.URL + "/v1/traces", SampleRatio: 1, Headers: map[string]string{"X-Key": "secret-key"}})
	request(t.Context(), all, "")
	all.Close()
	assert.Equal(t, len(elsewhere.Asked()), 0)
	_, _, failed := all.Counts()
	assert.Equal(t, failed, uint64(2))
}

func TestSettingsChangeWhileRequestsGoOn(t *testing.T) {
	first, second := otlptest.New(t), otlptest.New(t)
	all, _ := begin(t, tracing.Settings{Endpoint: first.Endpoint(), SampleRatio: 1})
	ctx := all.Begin(t.Context(), "", time.Now(), "GET /old", "")
	next := tracing.Settings{Endpoint: second.Endpoint(), SampleRatio: 1}
	all.Apply(next)
	all.Apply(next)
	request(t.Context(), all, "")
	_, part := span.Start(ctx, "part")
	part.End()
	trace.SpanFromContext(ctx).End()
	all.Apply(tracing.Settings{})
	assert.Equal(t, all.Begin(t.Context(), "", time.Now(), "GET /none", ""), t.Context())
	all.Close()
	assert.Equal(t, len(second.Taken()), 2)
	assert.Equal(t, len(named(second.Taken(), "GET /old")), 0)
}

func FuzzTraceParent(f *testing.F) {
	for _, seed := range []string{
		sampled, dropped, "", "00", "00-" + theirs, sampled + "-more", "01-" + theirs + "-b7ad6b7169203331-01-more", "ff-" + theirs + "-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-" + theirs + "-0000000000000000-01", strings.ToUpper(sampled),
		"00-" + theirs + "-b7ad6b7169203331-ff", strings.Repeat("0-", 10_000), "00-\x00\xff", " " + sampled,
	} {
		f.Add(seed)
	}
	r := httptest.NewServer(http.NotFoundHandler())
	f.Cleanup(r.Close)
	all := tracing.New(hclog.NewNullLogger(), "1.0")
	all.Apply(tracing.Settings{Endpoint: r.URL + "/v1/traces"})
	f.Cleanup(all.Close)
	f.Fuzz(func(t *testing.T, header string) {
		s := trace.SpanContextFromContext(all.Begin(t.Context(), header, time.Now(), "GET /", ""))
		assert.Assert(t, s.IsValid())
		assert.Assert(t, !s.IsSampled())
		assert.Equal(t, s.TraceState().Len(), 0)
		if s.TraceID().String() == theirs {
			assert.Assert(t, strings.Contains(header, theirs))
		}
	})
}
