package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

const wantsEvents = "Accept: text/event-stream"

// heard is a stream of events that was read to its end.
type heard struct {
	t      *testing.T
	events []sse.Event
}

func (f *fixture) events(body string) heard {
	f.t.Helper()
	resp := f.do(http.MethodPost, "/api/v1/execute", body, wantsEvents).wants(http.StatusOK)
	assert.Equal(f.t, resp.Header.Get("Content-Type"), "text/event-stream")
	assert.Equal(f.t, resp.Header.Get("Cache-Control"), "no-cache, no-transform")
	assert.Equal(f.t, resp.Header.Get("X-Accel-Buffering"), "no")
	assert.Equal(f.t, resp.Header.Get("X-Request-Id"), "test-request")
	h := heard{t: f.t}
	for r := sse.NewReader(strings.NewReader(resp.text), 1<<20); ; {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return h
		}
		assert.NilError(f.t, err)
		h.events = append(h.events, e)
	}
}

func (h heard) names() string {
	var names []string
	for _, e := range h.events {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

// last decodes the last event, which must be of that name and the only one of it.
func (h heard) last(name string, into any) {
	h.t.Helper()
	last := h.events[len(h.events)-1]
	assert.Equal(h.t, last.Name, name, string(last.Data))
	assert.Equal(h.t, strings.Count(h.names(), name), 1)
	assert.NilError(h.t, json.Unmarshal(last.Data, into))
}

// output puts the pieces of a stream together.
func (h heard) output(name string) []byte {
	h.t.Helper()
	var all []byte
	for _, e := range h.events {
		if e.Name != name {
			continue
		}
		var part client.OutputPart
		assert.NilError(h.t, json.Unmarshal(e.Data, &part))
		assert.Assert(h.t, (part.Text == "") != (part.Base64 == nil), string(e.Data))
		all = append(append(all, part.Text...), part.Base64...)
	}
	return all
}

func TestAnExecutionIsStreamed(t *testing.T) {
	f := start(t)
	f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		assert.Check(t, out.Stdout([]byte("one\n")))
		assert.Check(t, out.Stderr([]byte("two <b>\n")))
		assert.Check(t, out.Stdout([]byte("three\n")))
		return sdk.ExecuteResult{
			Status: sdk.StatusFailed, ExitCode: 3, Duration: 1500 * time.Millisecond, PeakMemoryBytes: 1 << 20,
			Result: json.RawMessage("{\"a\":\n  [1, 2]}"), Findings: []sdk.Finding{{Line: 1, Rule: "r", Message: "m"}},
		}, nil
	}
	h := f.events(`{"code":"1","language":"python","execution_id":"mine"}`)
	assert.Equal(t, h.names(), "started stdout stderr stdout result done")
	assert.Equal(t, string(h.events[1].Data), `{"text":"one\n"}`)
	assert.Equal(t, string(h.events[2].Data), `{"text":"two <b>\n"}`)
	assert.Equal(t, string(h.events[4].Data), "{\"result\":{\"a\":\n  [1, 2]}}")
	var began client.ExecutionStarted
	assert.NilError(t, json.Unmarshal(h.events[0].Data, &began))
	assert.Equal(t, began.ExecutionID, "mine")
	assert.Equal(t, began.Provider, "first")

	// What comes last is the one answer without what was told before.
	var streamed, whole map[string]any
	h.last("done", &streamed)
	assert.Equal(t, streamed["instance_id"], began.InstanceID)
	f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python","execution_id":"mine"}`).wants(http.StatusOK).decode(&whole)
	for _, name := range []string{"stdout", "stderr", "result"} {
		_, there := whole[name]
		assert.Assert(t, there, name)
		delete(whole, name)
	}
	delete(whole, "instance_id")
	delete(streamed, "instance_id")
	assert.DeepEqual(t, streamed, whole)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(cmp.Equal(strings.Count(f.log.String(), `tenant=acme method=POST route=/api/v1/execute status=200 code=""`), 2))
	}, poll.WithTimeout(2*time.Minute))
}

func TestOutputArrivesByteForByte(t *testing.T) {
	euro := "€"
	for name, test := range map[string]struct {
		writes []string
		parts  []string
	}{
		"text":                              {[]string{"a", "b"}, []string{`{"text":"a"}`, `{"text":"b"}`}},
		"a character in three pieces":       {[]string{"a" + euro[:1], euro[1:2], euro[2:] + "b"}, []string{`{"text":"a"}`, `{"text":"€b"}`}},
		"half a character at the end":       {[]string{"a" + euro[:2]}, []string{`{"text":"a"}`, `{"base64":"4oI="}`}},
		"a character that goes on wrong":    {[]string{euro[:1], "x"}, []string{`{"base64":"4ng="}`}},
		"bytes that are no text":            {[]string{"a\xff", "b"}, []string{`{"base64":"Yf8="}`, `{"text":"b"}`}},
		"NUL, and what JSON escapes":        {[]string{"\x00\"\\\u2028<"}, []string{`{"text":"\u0000\"\\\u2028<"}`}},
		"the character for what is no text": {[]string{"\ufffd"}, []string{`{"text":"` + "\ufffd" + `"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				for _, text := range test.writes {
					assert.Check(t, out.Stderr([]byte(text)))
				}
				return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
			}
			h := f.events(`{"code":"1","language":"python"}`)
			assert.Equal(t, string(h.output("stderr")), strings.Join(test.writes, ""))
			var parts []string
			for _, e := range h.events[1 : len(h.events)-1] {
				parts = append(parts, string(e.Data))
			}
			assert.DeepEqual(t, parts, test.parts)
		})
	}
}

func TestOutputThatIsCutEndsWithAWholeCharacter(t *testing.T) {
	f := start(t)
	f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		text := []byte(strings.Repeat("€", 342))
		for piece := range slices.Chunk(text[:1024], 3) {
			assert.Check(t, out.Stdout(piece))
		}
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Truncated: true}, nil
	}
	h := f.events(`{"code":"1","language":"python"}`)
	assert.Equal(t, string(h.output("stdout")), strings.Repeat("€", 341))
	var end client.ExecutionEnd
	h.last("done", &end)
	assert.Assert(t, end.Truncated)
}

func TestWhatFailsBeforeTheStartIsAPlainProblem(t *testing.T) {
	f := start(t)
	f.do(http.MethodPost, "/api/v1/execute", `{"code":"1"}`, wantsEvents).problem(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"cobol"}`, wantsEvents).problem(http.StatusUnprocessableEntity, "SB010")
	f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, wantsEvents, "Authorization: Bearer wrong").problem(http.StatusUnauthorized, "SB011")
	f.do(http.MethodPost, "/api/v1/instances/acme:s1:aaaaaaaaaaaaaaaaaaaa/execute", `{"code":"1","language":"python"}`, wantsEvents).problem(http.StatusNotFound, "SB013")
	f.provider.OnCreate = func(context.Context, sdk.CreateRequest) error { return sdk.Errorf(sdk.CodeCreateFailed, "no room") }
	p := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, wantsEvents).problem(http.StatusServiceUnavailable, "SB004")
	assert.Equal(t, p.Provider, "first")
}

func TestWhatFailsAfterTheStartIsTheLastEvent(t *testing.T) {
	f := start(t)
	f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		assert.Check(t, out.Stdout([]byte("so far")))
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeConnectionFailed, "no route")
	}
	h := f.events(`{"code":"1","language":"python"}`)
	assert.Equal(t, h.names(), "started stdout error")
	var streamed, plain client.Problem
	h.last("error", &streamed)
	f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).wants(http.StatusBadGateway).decode(&plain)
	plain.InstanceID = streamed.InstanceID
	assert.DeepEqual(t, streamed, plain)
	assert.Equal(t, streamed.RequestID, "test-request")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(cmp.Contains(f.log.String(), "status=200 code=SB003"))
	}, poll.WithTimeout(2*time.Minute))
	// The code's own end is no failure.
	f.provider.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		return sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137, Detail: "late"}, nil
	}
	h = f.events(`{"code":"1","language":"python"}`)
	assert.Equal(t, h.names(), "started done")
	var end client.ExecutionEnd
	h.last("done", &end)
	assert.Equal(t, end.Error.Code, "SB005")
}

func TestTheFormIsNegotiated(t *testing.T) {
	f := start(t)
	for accept, events := range map[string]bool{
		"text/event-stream":                         true,
		"text/event-stream, application/json;q=0.5": true,
		"text/event-stream, */*":                    true,
		"application/json":                          false,
		"application/json, text/event-stream":       false,
		"application/json, text/event-stream;q=0.5": false,
		"*/*":                   false,
		"text/html":             false,
		"":                      false,
		"text/event-stream;q=0": false,
		"text/event-stream;q=0, application/json;q=0.1": false,
	} {
		resp := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, "Accept: "+accept).wants(http.StatusOK)
		assert.Check(t, cmp.Equal(resp.Header.Get("Content-Type") == sse.MediaType, events), accept)
	}
}

func TestAClientThatLeavesItsStreamCancelsTheExecution(t *testing.T) {
	f := start(t)
	cancelled := make(chan struct{})
	f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		<-ctx.Done()
		close(cancelled)
		return sdk.ExecuteResult{}, ctx.Err()
	}
	ctx, leave := context.WithCancel(t.Context())
	resp, err := f.client.Do(f.request(ctx, http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, wantsEvents))
	assert.NilError(t, err)
	defer resp.Body.Close()
	e, err := sse.NewReader(resp.Body, 1<<10).Next()
	assert.NilError(t, err)
	assert.Equal(t, e.Name, "started")
	leave()
	<-cancelled
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(cmp.Len(f.provider.Live(), 0)) }, poll.WithTimeout(2*time.Minute))
}

func TestAReaderThatDoesNotReadHoldsUpTheCodeAndNotMemory(t *testing.T) {
	const all = 1 << 30
	f := start(t, func(o *api.Options, f *fixture) {
		limits := instancetest.Limits()
		limits.Output = 2 * all
		f.service.Shutdown(t.Context())
		f.service = instance.NewService(instance.Options{Catalog: instancetest.Catalog{f.provider}, Limits: limits, Logger: o.Logger})
		o.Instances = f.service
	})
	var taken atomic.Int64
	ended := make(chan error, 1)
	f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		piece := bytes.Repeat([]byte("x"), 64<<10)
		for taken.Load() < all {
			if err := out.Stdout(piece); err != nil {
				ended <- err
				return sdk.ExecuteResult{}, err
			}
			taken.Add(int64(len(piece)))
		}
		ended <- nil
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}
	conn, _ := f.dial()
	body := `{"code":"1","language":"python"}`
	_, err := fmt.Fprintf(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: acme-token\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	assert.NilError(t, err)
	// It comes to a halt long before the end: what is between are sockets.
	before := int64(-1)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		now := taken.Load()
		if now > 0 && now == before {
			return poll.Success()
		}
		before = now
		return poll.Continue("%d bytes were taken", now)
	}, poll.WithDelay(100*time.Millisecond), poll.WithTimeout(2*time.Minute))
	assert.Assert(t, taken.Load() < 64<<20, "%d bytes were taken", taken.Load())
	assert.NilError(t, conn.Close())
	assert.Assert(t, <-ended != nil)
}

func TestAnExecutionIsInterrupted(t *testing.T) {
	f := start(t)
	told := make(chan struct{})
	f.provider.OnInterrupt = func(context.Context, string, string) error { close(told); return nil }
	f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		assert.Check(t, out.Stdout([]byte("so far")))
		<-told
		return sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: 130}, nil
	}
	resp, err := f.client.Do(f.request(t.Context(), http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python","session_id":"s1"}`, wantsEvents))
	assert.NilError(t, err)
	defer resp.Body.Close()
	r := sse.NewReader(resp.Body, 1<<10)
	first, err := r.Next()
	assert.NilError(t, err)
	var began client.ExecutionStarted
	assert.NilError(t, json.Unmarshal(first.Data, &began))
	path := "/api/v1/instances/" + escaped(began.InstanceID) + "/executions/"

	f.do(http.MethodDelete, path+"another", "").problem(http.StatusNotFound, "SB013")
	f.do(http.MethodDelete, path+began.ExecutionID, "", "Authorization: Bearer umbrella-token").problem(http.StatusNotFound, "SB013")
	p := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python","execution_id":"`+began.ExecutionID+`"}`).problem(http.StatusConflict, "SB014")
	assert.Equal(t, p.Field, "execution_id")

	assert.Equal(t, f.do(http.MethodDelete, path+began.ExecutionID, "").wants(http.StatusAccepted).text, "")
	h := heard{t: t}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		assert.NilError(t, err)
		h.events = append(h.events, e)
	}
	assert.Equal(t, h.names(), "stdout done")
	var end client.ExecutionEnd
	h.last("done", &end)
	assert.Equal(t, end.Status, "cancelled")
	assert.Equal(t, end.ExitCode, 130)
	f.do(http.MethodDelete, path+began.ExecutionID, "").problem(http.StatusNotFound, "SB013")
}
