package handover

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// ErrShuttingDown is what Take returns when Shutdown has begun.
var ErrShuttingDown = errors.New("the server is shutting down")

const (
	// headTimeout bounds the reading of a head that is there already.
	headTimeout = 10 * time.Second
	// drainTime is how long the end of a body is waited for that the handler has
	// not read.
	drainTime = 250 * time.Millisecond
)

// Options of a Server.
type Options struct {
	// Base is the parent of the requests' contexts.
	Base context.Context
	// ErrorLog receives what net/http complains about, panics of handlers
	// included.
	ErrorLog *log.Logger
	// Stall is how long a read of a request's body may wait for the client.
	Stall time.Duration
}

// Server answers requests with net/http on connections of fasthttp.
type Server struct {
	http    *http.Server
	stall   time.Duration
	mark    string // the value of the header that marks a held body
	queue   chan net.Conn
	closed  chan struct{} // ends Serve
	closing sync.Once
	running sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	served   chan struct{}      // closed when Serve has returned; nil if it was never needed
	conns    map[net.Conn]*conn // by what fasthttp has
}

// NewServer returns a server. The caller must Close it.
func NewServer(opts Options) *Server {
	s := &Server{
		stall:  opts.Stall,
		mark:   newMark(),
		queue:  make(chan net.Conn),
		closed: make(chan struct{}),
		conns:  map[net.Conn]*conn{},
	}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: headTimeout,
		ErrorLog:          opts.ErrorLog,
		BaseContext:       func(net.Listener) context.Context { return opts.Base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		DisableGeneralOptionsHandler: true,
	}
	// What stands behind the request on the connection is never read as another.
	s.http.SetKeepAlivesEnabled(false)
	return s
}

// start serves from the first connection on. The caller holds mu.
func (s *Server) start() {
	if s.served != nil {
		return
	}
	served := make(chan struct{})
	s.served = served
	go func() {
		defer close(served)
		_ = s.http.Serve(listener{s}) // it says only that it was closed
	}()
}

type connKey struct{}

// Take hands a request to handler, which runs when the caller has returned to
// fasthttp. Its http.Request has the body that Hold left on the connection, or
// else the one that fasthttp has read; call ResetBody before for none. The
// request's context ends with the client, with Base, and when handler returns.
// The connection is closed after the answer.
//
// The error, if any, is ErrShuttingDown or says what is wrong with the request;
// nothing has happened then.
func (s *Server) Take(fctx *fasthttp.RequestCtx, handler http.Handler) error {
	head, err := s.headOf(fctx)
	if err != nil {
		return err
	}
	c := &conn{Conn: fctx.Conn(), head: head, handler: handler, left: make(chan struct{})}
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return ErrShuttingDown
	}
	s.start()
	s.conns[c.Conn] = c
	s.running.Add(1) // under mu and never when stopping, as WaitGroup demands
	s.mu.Unlock()

	fctx.HijackSetNoResponse(true)
	fctx.Hijack(func(hijacked net.Conn) {
		defer s.forget(c)
		c.attach(hijacked)
		select {
		case s.queue <- c:
			<-c.left
		case <-s.closed:
			_ = c.Close()
		}
		c.detach()
	})
	return nil
}

// forget ends what Take has begun.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.Conn)
	s.running.Done()
}

// Closed forgets what was taken on a connection that fasthttp has closed itself. It belongs
// into fasthttp's ConnState: one whose client is gone by then is not handed over.
func (s *Server) Closed(socket net.Conn) {
	s.mu.Lock()
	c := s.conns[socket]
	s.mu.Unlock()
	if c != nil {
		s.forget(c)
	}
}

// serve is the handler of the http.Server: it finds that of the connection.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || !s.begin(c) {
		return
	}
	defer s.running.Done()
	if r.Body != http.NoBody {
		c.bodyLeft.Store(true)
		r = r.WithContext(r.Context()) // net/http looks at the body of its own
		r.Body = &patientBody{ReadCloser: r.Body, conn: c, stall: s.stall}
		defer func() {
			if c.bodyLeft.Load() { // net/http looks for its end before it closes
				_ = c.SetReadDeadline(time.Now().Add(drainTime))
			}
		}()
	}
	c.handler.ServeHTTP(w, r)
}

// begin counts a handler, unless its connection was cut.
func (s *Server) begin(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.Conn] != c {
		return false
	}
	s.running.Add(1) // the connection, which is counted, has not ended
	return true
}

// Shutdown takes nothing more and waits for the requests in progress. When ctx
// ends before they do it says so with ctx's error; then Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for streams: %w", ctx.Err())
	}
}

// Close cuts the connections that are left and returns when the last handler
// has. End Base before, which is what handlers hear.
func (s *Server) Close() { s.closing.Do(s.close) }

func (s *Server) close() {
	s.mu.Lock()
	s.stopping = true
	for _, c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	s.running.Wait()
	close(s.closed)
	_ = s.http.Close() // the connections are closed already
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	if served != nil {
		<-served
	}
}

// listener gives the http.Server the connections that Take takes.
type listener struct{ server *Server }

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.server.queue:
		return c, nil
	case <-l.server.closed:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the http.Server calls it at the end of Serve, which Close
// of the Server brings about.
func (l listener) Close() error { return nil }

func (l listener) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "handover" }
func (address) String() string  { return "handover" }
