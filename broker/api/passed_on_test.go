package api_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
)

// echo is a peer that answers with what it gets.
type echo struct {
	asked atomic.Int32
	call  atomic.Pointer[peer.Call]
}

func (e *echo) Forward(w http.ResponseWriter, r *http.Request, _ peer.Peer, call peer.Call) error {
	e.asked.Add(1)
	e.call.Store(&call)
	clear(w.Header())
	w.Header().Set("X-Peer", "it")
	w.WriteHeader(http.StatusAccepted)
	_, err := io.Copy(w, r.Body)
	return err
}

func (e *echo) Short(w http.ResponseWriter, r *http.Request, to peer.Peer, call peer.Call, _ int64) (*http.Response, error) {
	return nil, e.Forward(w, r, to, call)
}

func (e *echo) Relay(http.ResponseWriter, *http.Request, peer.Peer, *http.Response) error { return nil }

// A stream is passed on as long as nothing is lost that it has brought, nor anything said.
func TestAStreamIsPassedOnWholeOrNotAtAll(t *testing.T) {
	elsewhere := peer.Elsewhere(peer.Peer{ID: "other", Address: "x:1"})
	for name, c := range map[string]struct {
		handle func(w http.ResponseWriter, r *http.Request) error
		alone  bool
		status int // 0 for an answer that breaks off
	}{
		"nothing was read": {handle: func(http.ResponseWriter, *http.Request) error { return elsewhere }, status: http.StatusAccepted},
		"a header was set": {
			handle: func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("X-Ours", "it")
				return elsewhere
			}, status: http.StatusAccepted,
		},
		"a byte was read": {
			handle: func(_ http.ResponseWriter, r *http.Request) error {
				_, _ = r.Body.Read(make([]byte, 1))
				return elsewhere
			}, status: http.StatusServiceUnavailable,
		},
		"the answer has begun": {
			handle: func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				return elsewhere
			},
		},
		"there are no peers": {handle: func(http.ResponseWriter, *http.Request) error { return elsewhere }, alone: true, status: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			other := &echo{}
			f := start(t, func(o *api.Options, f *fixture) {
				if !c.alone {
					o.Peers = other
				}
				f.newServer = func(opts api.Options) (*api.Server, error) { return api.NewServerWithStream(opts, c.handle) }
			})
			body := strings.Repeat("0123456789", 100_000)
			resp, err := f.client.Do(f.request(t.Context(), http.MethodPost, streamPath+"?how=x%20y", body, "Content-Type: application/octet-stream"))
			if c.status == 0 {
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				assert.Assert(t, err != nil, "it breaks off")
				assert.Equal(t, other.asked.Load(), int32(0))
				return
			}
			assert.NilError(t, err)
			a := read(t, resp).wants(c.status)
			if c.status != http.StatusAccepted {
				a.problem(http.StatusServiceUnavailable, "SB009")
				assert.Equal(t, a.Header.Get("Retry-After"), "1")
				assert.Equal(t, other.asked.Load(), int32(0))
				return
			}
			assert.Equal(t, a.text, body)
			assert.Equal(t, a.Header.Get("X-Peer")+a.Header.Get("X-Ours"), "it")
			call := other.call.Load()
			assert.Equal(t, call.Target, streamPath+"?how=x%20y")
			assert.Equal(t, call.RequestID, "test-request")
			assert.Equal(t, call.Hop.Scheme, "http")
			assert.Assert(t, strings.HasPrefix(call.Hop.Remote, "127.0.0.1:"), call.Hop.Remote)
		})
	}
}
