package rest

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/valyala/fasthttp"
)

// A front door may answer by the broker's own API. Its requests go over pipes within this
// process and are screened, authenticated, counted and logged as any other; they belong to
// the request that they are made for, and so does what they cause.

// insideConn is the server's end of such a pipe.
type insideConn struct {
	net.Conn
	// outer is the request that it serves.
	outer *exchange
	// gone ends when the other end is closed.
	gone context.Context
}

// callerConn is the other end.
type callerConn struct {
	net.Conn
	leave context.CancelFunc
}

// Close implements net.Conn.
func (c *callerConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// Inside is a client by which a front door asks the other APIs of its server, for this call.
// Such a request has the call's ID and, in the audit log, its remote address and its door. It
// needs a token. Its host, which a URL has to have, leads nowhere else: use InsideURL.
func (c Call[In]) Inside() *http.Client {
	x := c.x
	return &http.Client{Transport: &http.Transport{
		// A connection belongs to one call, and ends with it.
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return x.api.server.dialInside(x)
		},
	}}
}

// InsideURL is where Inside finds the APIs. No domain that an operator may give has a host
// of this form.
const InsideURL = "http://in_process"

// dialInside returns one end of a pipe and serves the other one.
func (s *Server) dialInside(outer *exchange) (net.Conn, error) {
	if err := s.base.Err(); err != nil {
		return nil, fmt.Errorf("the server has ended: %w", err)
	}
	ours, theirs := net.Pipe()
	gone, leave := context.WithCancel(s.base)
	conn := &insideConn{Conn: theirs, outer: outer, gone: gone}
	s.tasks.Go("answer a front door", func() {
		defer context.AfterFunc(s.base, func() { _ = theirs.Close() })()
		_ = s.insideServer.ServeConn(conn) // what fails is seen at the other end
	})
	return &callerConn{Conn: ours, leave: leave}, nil
}

// newInside is called when the server itself is complete.
func newInside(usual *fasthttp.Server) *fasthttp.Server {
	return &fasthttp.Server{
		Handler: usual.Handler, ErrorHandler: usual.ErrorHandler, HeaderReceived: usual.HeaderReceived,
		ConnState: usual.ConnState,
		Logger:    usual.Logger, LogAllErrors: usual.LogAllErrors,
		Name: usual.Name, NoDefaultServerHeader: usual.NoDefaultServerHeader,
		Concurrency: usual.Concurrency, MaxRequestBodySize: usual.MaxRequestBodySize,
		ReadTimeout: usual.ReadTimeout, IdleTimeout: usual.IdleTimeout,
		ReadBufferSize: usual.ReadBufferSize, WriteBufferSize: usual.WriteBufferSize,
		DisablePreParseMultipartForm: usual.DisablePreParseMultipartForm,
	}
}
