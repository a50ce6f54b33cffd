package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// wire carries the requests of a client that a library sends for it. It opens the door,
// takes down how they were answered, which the library tells in words of its own, and can
// be cut.
type wire struct {
	token     string
	transport *http.Transport

	mu    sync.Mutex
	conns []net.Conn
}

func newWire(token string) *wire {
	w := &wire{token: token}
	w.transport = &http.Transport{
		DialContext:           w.dial,
		ResponseHeaderTimeout: 2 * mcpPatience, // of what the library asks by itself
	}
	return w
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

// cut breaks all connections. New ones can be made.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close() // it may be closed already
	}
	w.conns = nil
}

// exchange is a request with what came back, as far as it did.
type exchange struct {
	mu     sync.Mutex
	status int
	// body is that of a refusal.
	body []byte
	// broke is why there is no more of the answer, io.EOF if there is none.
	broke error
}

type exchangeKey struct{}

// watch returns a context whose requests are taken down, the last one at last.
func (w *wire) watch(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// told is what came back.
func (x *exchange) told() (status int, body []byte, broke error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status, x.body, x.broke
}

func (x *exchange) note(status int, body []byte, broke error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status, x.body, x.broke = status, body, broke
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	x, watched := r.Context().Value(exchangeKey{}).(*exchange)
	if !watched {
		return w.transport.RoundTrip(r)
	}
	x.note(0, nil, nil)
	resp, err := w.transport.RoundTrip(r)
	switch {
	case err != nil:
		x.note(0, nil, err)
	case resp.StatusCode >= http.StatusBadRequest:
		body, broke := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read
		resp.Body = io.NopCloser(bytes.NewReader(body))
		if broke != nil { // half of a refusal is none
			x.note(0, nil, broke)
		} else {
			x.note(resp.StatusCode, body, nil)
		}
	default:
		x.note(resp.StatusCode, nil, nil)
		resp.Body = watchedBody{resp.Body, x, resp.StatusCode}
	}
	return resp, err
}

// watchedBody takes down how an answer ends.
type watchedBody struct {
	io.ReadCloser
	x      *exchange
	status int
}

func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.x.note(b.status, nil, err)
	}
	return n, err
}

func TestWhatIsTakenForAnAnswer(t *testing.T) {
	tier.Full(t)
	refused := `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"SB009 Unavailable: x","data":{"code":"SB009"}}}`
	lost := errors.New("calling \"tools/call\": request terminated without response")
	for name, test := range map[string]struct {
		exchange *exchange
		err      error
		want     event
	}{
		"a refusal of the request": {
			exchange: &exchange{status: 503, body: []byte(refused)}, err: lost, want: event{Status: 503, Code: "SB009", Detail: "SB009 Unavailable: x"},
		},
		"a refusal in no form": {exchange: &exchange{status: 502, body: []byte("<html>")}, err: lost, want: event{Status: 502}},
		"an error of the protocol": {
			exchange: &exchange{status: 200, broke: io.EOF}, err: fmt.Errorf("calling: %w", &jsonrpc.Error{Code: -32603, Message: "nobody calls"}),
			want: event{Status: 500, Detail: "nobody calls"},
		},
		"a connection that was closed before an answer": {exchange: &exchange{broke: io.EOF}, err: lost, want: event{Error: "EOF"}},
		"nobody listens":            {exchange: &exchange{broke: syscall.ECONNREFUSED}, err: lost, want: event{Error: "connection refused"}},
		"a stream that breaks":      {exchange: &exchange{status: 200, broke: io.ErrUnexpectedEOF}, err: lost, want: event{Error: "unexpected EOF"}},
		"a stream that ends early":  {exchange: &exchange{status: 200, broke: io.EOF}, err: lost, want: event{Status: 504, Detail: "no answer: " + lost.Error()}},
		"an answer that never ends": {exchange: &exchange{status: 200}, err: context.DeadlineExceeded, want: event{Status: 504, Detail: "no answer: context deadline exceeded"}},
		"a request that was never answered": {
			exchange: &exchange{broke: context.DeadlineExceeded}, err: context.DeadlineExceeded, want: event{Status: 504, Detail: "no answer: context deadline exceeded"},
		},
		"a connection that was broken before": {exchange: &exchange{}, err: mcp.ErrConnectionClosed, want: event{Error: mcp.ErrConnectionClosed.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			var got event
			test.exchange.read(&got, test.err)
			assert.DeepEqual(t, got, test.want)
		})
	}
}
