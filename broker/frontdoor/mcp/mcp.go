// Package mcp is the front door for assistants that speak the Model Context Protocol: tools
// that run code and commands in sandboxes, over HTTP and over standard input and output
// (docs/front-doors/mcp.md).
//
// The tools are written against the client of the broker's own REST API, so that tenants,
// quotas, audit and refusals are those of that API. server.go has the server of the tools,
// runs.go, commands.go, files.go and sessions.go the tools themselves, and output.go what an
// answer may hold. Here is the door that serves them over HTTP; `sandbox-broker mcp` serves
// them over standard input and output. Nothing is kept between two calls: each names its
// session, which is the broker's.
package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Name of the door.
const Name = "mcp"

// Door serves the tools over HTTP.
type Door struct {
	api      *rest.API
	handler  http.Handler
	calls    calls
	settings atomic.Pointer[frontdoor.Settings]
}

var _ frontdoor.Door = (*Door)(nil)

// Add adds the door to a server. It is closed until Apply opens it. The version is what
// clients are told.
func Add(server *rest.Server, version string) *Door {
	d := &Door{}
	d.settings.Store(&frontdoor.Settings{})
	tools := NewServer(version, callerOf)
	d.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{
		Stateless:                    true,
		PropagateRequestCancellation: true,
		MaxRequestBodyBytes:          -1,   // it has been read, within the bounds of all bodies
		DisableLocalhostProtection:   true, // see checkOrigin
	})
	d.api = server.NewAPI(rest.APIOptions{Name: Name, Problem: problem})
	for _, path := range []string{"", "/"} {
		rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: path, AnyQuery: true}, d.serve)
	}
	return d
}

// Apply implements frontdoor.Door.
func (d *Door) Apply(s *frontdoor.Settings) {
	if s == nil {
		d.api.Mount("")
		return
	}
	d.settings.Store(s)
	d.api.Mount(s.Path)
}

// Fields of the header that are the protocol's.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
)

// firstStateless is the first version of the protocol without sessions. Versions are dates.
const firstStateless = "2026-07-28"

// maxBatch is how many messages one request may have, in the versions that allow several.
// They are carried out beside each other.
const maxBatch = 20

// message is what the door looks at in a message before the SDK does.
type message struct {
	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// serve answers a POST. Before the first version without sessions a client cancels a call by
// another request, which has to be known for the same client's: so it is given an ID, by
// which calls in progress are found and nothing else. It is no credential.
func (d *Door) serve(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	if err := checkOrigin(r); err != nil {
		return err
	}
	var batch []json.RawMessage
	if json.Unmarshal(c.Body, &batch) == nil && len(batch) > maxBatch {
		return rest.BadRequest(http.StatusBadRequest, fmt.Sprintf("A request has at most %d messages.", maxBatch))
	}
	ctx := r.Context()
	if r.Header.Get(headerVersion) < firstStateless {
		var m message
		_ = json.Unmarshal(c.Body, &m) // what is no message, or several, the SDK answers
		session := r.Header.Get(headerSession)
		switch {
		case m.Method == "initialize":
			w.Header().Set(headerSession, rand.Text())
		case session != "" && m.Method == "notifications/cancelled":
			d.calls.cancel(callID{c.Tenant.Name, session, string(m.Params.RequestID)})
		case session != "" && len(m.ID) > 0:
			var end func()
			ctx, end = d.calls.begin(ctx, callID{c.Tenant.Name, session, string(m.ID)})
			defer end()
		}
	}
	s := d.settings.Load()
	ctx = context.WithValue(ctx, callerKey{}, Caller{
		Client:   client.New(rest.InsideURL, tokenOf(r)).Over(c.Inside()),
		Provider: s.Provider, Wait: s.Wait, Gone: ctx, RequestID: c.RequestID,
		Address: c.Scheme + "://" + cmp.Or(s.Address, c.Host),
	})
	r = r.WithContext(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.Body)), int64(len(c.Body))
	d.handler.ServeHTTP(w, r)
	return nil
}

type callerKey struct{}

// callerOf is who has sent the request that a call came with.
func callerOf(ctx context.Context) (Caller, error) {
	who, ok := ctx.Value(callerKey{}).(Caller)
	if !ok {
		return who, errors.New("nobody calls")
	}
	return who, nil
}

// tokenOf is the token of a request that was authenticated: where there are several they are
// the same.
func tokenOf(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return r.Header.Get("X-API-Key")
}

// checkOrigin refuses pages of other sites, and those that have come to a loopback address
// by a name that leads there. Only browsers say where a request comes from; a proxy on this
// machine, which passes on the name that its clients use, is let in.
func checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	u, err := url.Parse(origin)
	foreign := err != nil || !strings.EqualFold(u.Host, r.Host)
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !foreign && ok && isLoopback(local.String()) {
		foreign = !isLoopback(r.Host)
	}
	if foreign {
		return sdk.Errorf(sdk.CodeNotAllowed, "A page of another origin may not open this.")
	}
	return nil
}

// isLoopback reports whether a host, perhaps with a port, is this machine's alone.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// callID names a call in progress.
type callID struct{ tenant, session, id string }

// calls are those in progress, for clients that cancel them by another request. The zero
// value has none.
type calls struct {
	mu      sync.Mutex
	cancels map[callID]context.CancelFunc
}

// begin notes a call until end. Of two that a client has given the same ID the first one is
// found.
func (c *calls) begin(ctx context.Context, id callID) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(errCancelled) }
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancels == nil {
		c.cancels = map[callID]context.CancelFunc{}
	}
	_, twice := c.cancels[id]
	if !twice {
		c.cancels[id] = stop
	}
	return ctx, func() {
		cancel(nil)
		if !twice {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.cancels, id)
		}
	}
}

var errCancelled = errors.New("the caller has cancelled the call")

func (c *calls) cancel(id callID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.cancels[id]; cancel != nil {
		cancel()
	}
}

// refusedMessage is a refusal in the form of JSON-RPC. It is of no message: none was read.
type refusedMessage struct {
	Version string  `json:"jsonrpc"`
	ID      *string `json:"id"`
	Error   struct {
		Code    int          `json:"code"`
		Message string       `json:"message"`
		Data    rest.Refusal `json:"data"`
	} `json:"error"`
}

// problem puts a refusal of a whole request into the form of JSON-RPC.
func problem(err error, requestID string) rest.Problem {
	r := rest.RefusalOf(err, requestID)
	body := refusedMessage{Version: "2.0"}
	body.Error.Code = -32600 // invalid request
	if r.Status >= http.StatusInternalServerError {
		body.Error.Code = -32603 // internal error
	}
	body.Error.Message, body.Error.Data = string(r.Code)+" "+r.Title+": "+r.Detail, r
	return r.As("application/json", body)
}
