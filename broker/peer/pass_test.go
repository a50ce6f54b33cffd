package peer_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestAnInstanceIsUsedThroughAnotherBroker(t *testing.T) {
	f := start(t)
	id := f.create()
	at := "/api/v1/instances/" + id
	second := f.second.Address

	var got client.Instance
	f.do(second, http.MethodGet, at, "").wants(http.StatusOK).decode(&got)
	assert.Equal(t, got.ID, id)

	var ran client.Execution
	a := f.do(second, http.MethodPost, at+"/execute", `{"language":"python","code":"one"}`).wants(http.StatusOK)
	a.decode(&ran)
	assert.Equal(t, ran.Stdout, "ran one\n")
	assert.Equal(t, a.Header.Get("X-Request-Id"), "test-request")
	assert.DeepEqual(t, a.Header.Values("X-Request-Id"), []string{"test-request"})

	f.do(second, http.MethodPost, "/api/v1/execute", `{"language":"python","code":"two","session_id":"s"}`).wants(http.StatusOK).decode(&ran)
	assert.Equal(t, ran.InstanceID, id, "a session is found too")
	a = f.do(second, http.MethodPost, "/api/v1/execute", `{"language":"python","code":"three","session_id":"s"}`, "Accept: text/event-stream").wants(http.StatusOK)
	assert.Equal(t, a.Header.Get("Content-Type"), "text/event-stream")
	assert.Assert(t, is.Contains(a.text, "ran three"))

	f.do(second, http.MethodPost, "/api/v1/instances", `{"session_id":"s"}`).wants(http.StatusOK).decode(&got)
	assert.Equal(t, got.ID, id, "a session has one instance")
	assert.Equal(t, len(f.others.Live()), 0)

	said := f.box.lastOrigin()
	said.Remote, _, _ = strings.Cut(said.Remote, ":")
	assert.DeepEqual(t, said, origin.Origin{Cause: origin.Request, Tenant: "acme", RequestID: "test-request", Remote: "127.0.0.1"})
	assert.Assert(t, is.Contains(f.log.String(), "passed_on_to=owner"))
	assert.Assert(t, is.Contains(f.log.String(), "passed_on_by=second"))

	f.do(second, http.MethodDelete, at, "").wants(http.StatusNoContent)
	assert.Equal(t, len(f.box.Live()), 0)
	f.do(second, http.MethodGet, at, "").wants(http.StatusNotFound)
}

func TestAKeyIsTheOwners(t *testing.T) {
	f := start(t)
	at := "/api/v1/instances/" + f.create()
	const body = `{"language":"python","code":"once"}`
	first := f.do(f.second.Address, http.MethodPost, at+"/execute", body, "Idempotency-Key: k").wants(http.StatusOK)
	assert.Equal(t, first.Header.Get("Idempotency-Replayed"), "")
	for _, address := range []string{f.second.Address, f.first} {
		again := f.do(address, http.MethodPost, at+"/execute", body, "Idempotency-Key: k").wants(http.StatusOK)
		assert.Equal(t, again.Header.Get("Idempotency-Replayed"), "true")
		assert.Equal(t, again.text, first.text)
	}
}

func TestFilesGoThroughBothWays(t *testing.T) {
	f := start(t)
	at := "/api/v1/instances/" + f.create() + "/files/content?path=%2Fworkspace%2Fa%20b.bin"
	const size = 32 << 20
	content := func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }
	want := sha256.New()
	_, err := io.Copy(want, content())
	assert.NilError(t, err)
	for name, expect := range map[string]string{"at once": "", "when it is asked for": "100-continue"} {
		t.Run(name, func(t *testing.T) {
			req := f.request(t.Context(), f.second.Address, http.MethodPut, at, "")
			req.Body, req.ContentLength = io.NopCloser(content()), size
			req.Header.Set("Content-Type", "application/octet-stream")
			if expect != "" {
				req.Header.Set("Expect", expect)
			}
			resp, err := f.client.Do(req)
			assert.NilError(t, err)
			text, err := io.ReadAll(resp.Body)
			assert.NilError(t, err)
			assert.NilError(t, resp.Body.Close())
			assert.Equal(t, resp.StatusCode, http.StatusOK, string(text))

			resp, err = f.client.Do(f.request(t.Context(), f.second.Address, http.MethodGet, at, ""))
			assert.NilError(t, err)
			got := sha256.New()
			_, err = io.Copy(got, resp.Body)
			assert.NilError(t, err)
			assert.NilError(t, resp.Body.Close())
			assert.Equal(t, resp.ContentLength, int64(size))
			assert.Equal(t, hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(want.Sum(nil)))
		})
	}
	f.do(f.second.Address, http.MethodGet, at, "", "Range: bytes=10-19").wants(http.StatusPartialContent)
	f.do(f.second.Address, http.MethodPut, strings.Replace(at, "workspace", "elsewhere", 1), "x", "Content-Type: application/octet-stream").wants(http.StatusUnprocessableEntity)
}

func TestATerminalIsReachedThroughAnotherBroker(t *testing.T) {
	f := start(t)
	at := "/api/v1/instances/" + f.create() + "/commands"
	var command client.Command
	f.do(f.second.Address, http.MethodPost, at, `{"argv":["cat"],"background":true,"terminal":{"rows":10,"columns":40}}`).wants(http.StatusCreated).decode(&command)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+f.second.Address+at+"/"+command.ID+"/terminal", &websocket.DialOptions{ //nolint:bodyclose // Dial has read it
		Subprotocols: []string{"sandbox-broker.terminal.v1", "bearer.acme-token"},
	})
	assert.NilError(t, err)
	defer conn.CloseNow()
	assert.NilError(t, conn.Write(ctx, websocket.MessageBinary, []byte("over two brokers\n")))
	shown := ""
	for !strings.Contains(shown, "over two brokers") {
		_, frame, err := conn.Read(ctx)
		assert.NilError(t, err)
		shown += string(frame)
	}
}

func TestAProgramIsReachedThroughAnotherBroker(t *testing.T) {
	f := start(t)
	at := "/api/v1/instances/" + f.create() + "/ports/8000"
	a := f.do(f.second.Address, http.MethodPost, at+"//a%2Fb?c=%20d", `{"some":"body"}`, "X-Broker-Hop: remote=1.2.3.4%3A5&scheme=https").wants(http.StatusOK)
	assert.Equal(t, a.text, `{"some":"body"}`)
	assert.Equal(t, a.Header.Get("X-Path"), "//a%2Fb")
	assert.Equal(t, a.Header.Get("X-Proto"), "http")
	assert.Equal(t, a.Header.Get("X-Hop"), "", "programs do not see what brokers tell each other")
}

func TestWhatAClientLeavesEndsAtTheOwner(t *testing.T) {
	for name, accept := range map[string]string{"one answer": "application/json", "events": "text/event-stream"} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			at := "/api/v1/instances/" + f.create()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req := f.request(ctx, f.second.Address, http.MethodPost, at+"/execute", `{"language":"python","code":"hang"}`, "Accept: "+accept)
			gone := make(chan error, 1)
			go func() {
				resp, err := f.client.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				gone <- err
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				f.box.mu.Lock()
				defer f.box.mu.Unlock()
				if len(f.box.origins) > 0 {
					return poll.Success()
				}
				return poll.Continue("the execution has not begun")
			}, poll.WithTimeout(2*time.Minute))
			leave()
			assert.ErrorIs(t, <-gone, context.Canceled)
			select {
			case cause := <-f.box.ended:
				assert.Assert(t, cause != nil)
			case <-time.After(30 * time.Second):
				t.Fatal("the execution goes on at the owner")
			}
		})
	}
}

func TestAShortAnswerLeavesTheConnectionOpen(t *testing.T) {
	f := start(t)
	at := "/api/v1/instances/" + f.create() + "/execute"
	reused := func(body string) (again bool, size int) {
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { again = info.Reused }}
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		resp, err := f.client.Do(f.request(ctx, f.second.Address, http.MethodPost, at, body))
		assert.NilError(t, err)
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, resp.StatusCode, http.StatusOK, string(text))
		return again, len(text)
	}
	const short, long = `{"language":"python","code":"short"}`, `{"language":"python","code":"draw"}`
	_, _ = reused(short)
	again, _ := reused(short)
	assert.Assert(t, again, "after a short answer")
	_, size := reused(long)
	assert.Assert(t, size > 1<<20, "it is whole: %d bytes", size)
	again, _ = reused(short)
	assert.Assert(t, !again, "after one that is not")
}

// BenchmarkPassOn compares a call to the owner with one that is passed on.
func BenchmarkPassOn(b *testing.B) {
	f := start(b)
	at := "/api/v1/instances/" + f.create()
	for name, address := range map[string]string{"at the owner": f.first, "passed on": f.second.Address} {
		for what, ask := range map[string]func() answer{
			"get": func() answer { return f.do(address, http.MethodGet, at, "") },
			"execute": func() answer {
				return f.do(address, http.MethodPost, at+"/execute", `{"language":"python","code":"hello"}`)
			},
		} {
			b.Run(fmt.Sprintf("%s, %s", what, name), func(b *testing.B) {
				for b.Loop() {
					ask().wants(http.StatusOK)
				}
			})
		}
	}
}
