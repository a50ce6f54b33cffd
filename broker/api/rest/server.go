package rest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/hashicorp/go-hclog"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/sandbox-broker/sandbox-broker/broker/api/handover"
	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Tenants finds the tenant of a token; tenant.Directory is it.
type Tenants interface {
	Authenticate(token string) (tenant.Tenant, bool)
}

// Administrators knows their tokens; admin.Service is it.
type Administrators interface {
	// Enabled reports whether there are any.
	Enabled() bool
	Authenticate(token string) bool
}

// Rates counts requests; quota.Keeper is it.
type Rates interface {
	// Request counts one. limit is 0 when there is none; the error is SB008.
	Request(tenant string) (remaining, limit float64, err error)
}

// Meter counts what was answered; metrics.Metrics is it.
type Meter interface {
	// Request is told in a context with the origin of the request.
	Request(ctx context.Context, method, route string, status int, code sdk.Code, took time.Duration)
}

// Tracer begins the spans of requests; tracing.Tracing is it.
type Tracer interface {
	// Begin returns a context with the span of a request whose caller is known, which the
	// server ends, or ctx as it is. traceParent is what the caller has sent in the header
	// of that name, "" for none.
	Begin(ctx context.Context, traceParent string, began time.Time, name, tenant string, attributes ...attribute.KeyValue) context.Context
}

// Options of a Server.
type Options struct {
	Tenants Tenants
	// Administrators may be nil: then there are none.
	Administrators Administrators
	// Rates may be nil: then nothing is counted.
	Rates  Rates
	Logger hclog.Logger
	// Meter may be nil.
	Meter Meter
	// Tracer may be nil.
	Tracer Tracer
	Bounds Bounds
	// Answers may be nil: requests with an Idempotency-Key are refused then.
	Answers Answers
	// TLS is nil for plain HTTP.
	TLS *TLS
	// Peers may be nil: then no call is passed on.
	Peers Peers
	// Questions may be nil: then peers are not answered what they ask themselves.
	Questions Questions
}

// Bounds of a request.
type Bounds struct {
	// MaxBody is the largest body of a request, in bytes.
	MaxBody int64
	// Bodies is how many bytes the bodies of all requests that are under way may have
	// together, and BodiesPerTenant those of one tenant; 0 for as many as they like.
	// Those that stream do not count. One alone may have MaxBody in any case.
	Bodies, BodiesPerTenant int64
	// RequestTimeout is the deadline of a handler: a net below the deadlines
	// of the service, which are shorter.
	RequestTimeout time.Duration
	// DiskTimeout bounds the keeping of an answer; 0 means 30 s.
	DiskTimeout time.Duration
}

// Server serves the APIs that NewAPI makes.
type Server struct {
	opts   Options
	bounds atomic.Pointer[Bounds]
	// encryption of new connections; nil for none.
	encryption atomic.Pointer[tls.Config]
	// peerEncryption is that of new connections of peers; nil for none.
	peerEncryption atomic.Pointer[tls.Config]
	peers          *PeerServer
	app            *fiber.App
	ready          sync.Once
	tasks          *background.Group
	watching       sync.Once
	hangups        *hangups // see clients
	streams        *handover.Server
	arrivals       *arrivals
	// insideServer answers what front doors ask by Call.Inside.
	insideServer *fasthttp.Server
	apis         []*API
	strange      *API // answers what belongs to none of them
	hosts        []host
	// secret is in the path of all routes of front doors, and in nothing that is sent.
	secret   string
	mounting sync.Mutex
	mounts   atomic.Pointer[[]mount] // the longest path first
	holding  []pathPattern           // of the routes whose bodies stream
	reading  []pathPattern           // of those that come before them
	// base is the parent of the requests' contexts. It ends when the server
	// has waited long enough for them.
	base context.Context
	end  context.CancelFunc
}

const (
	// readTimeout bounds the arrival of one whole request, and each pause in a
	// body that streams.
	readTimeout = 30 * time.Second
	// tokenTimeout bounds the arrival of a body after the headers had a valid token.
	// fasthttp shows headerReceived no connection, but sets this as the deadline
	// of the one that the headers came by: that it is longer than readTimeout and
	// shorter than idleTimeout is how the connection learns of the token.
	tokenTimeout = readTimeout + 5*time.Second
	idleTimeout  = 2 * time.Minute
	// maxHeaders is fasthttp's read buffer, which all headers must fit into.
	maxHeaders = 16 << 10
)

// NewServer returns a server that Serve starts and Shutdown ends. Its APIs are made
// before it serves.
func NewServer(opts Options) *Server {
	s := &Server{opts: opts, tasks: background.NewGroup(opts.Logger), arrivals: newArrivals(), secret: rand.Text()}
	s.strange = &API{server: s, opts: APIOptions{Tokens: BearerTokens, Problem: plainProblem}}
	s.SetBounds(opts.Bounds)
	s.SetTLS(opts.TLS)
	s.base, s.end = context.WithCancel(context.Background())
	s.streams = handover.NewServer(handover.Options{
		Base:     s.base,
		ErrorLog: opts.Logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}),
		Stall:    readTimeout,
	})
	s.app = fiber.New(fiber.Config{
		Immutable:     true, // else strings change when the next request comes
		CaseSensitive: true,
		StrictRouting: true,
		UnescapePath:  true, // instance IDs hold colons, which clients escape
		// Off: a handler that answers early would leave the rest of the body
		// to be read as the next request. What streams is handed over.
		StreamRequestBody: false,
		BodyLimit:         int(opts.Bounds.MaxBody), // of nobody: headerReceived says how much each may send
		ReadBufferSize:    maxHeaders,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		// Else a form is parsed before anybody looked at the token.
		DisablePreParseMultipartForm: true,
		WriteTimeout:                 0, // it would count from the start of an answer and cut streams
		ErrorHandler:                 s.protocolError,

		DisableStartupMessage: true,
	})
	s.app.Use(s.observe)
	server := s.app.Server()
	server.Handler = s.screen(server.Handler)
	server.HeaderReceived = func(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
		return s.headerReceived(header, nil, false)
	}
	server.ConnState = s.connState
	s.insideServer = newInside(server)
	s.peers = newPeerServer(s)
	return s
}

// connState is told what becomes of each connection.
func (s *Server) connState(conn net.Conn, state fasthttp.ConnState) {
	admitted(conn).SetIdle(state == fasthttp.StateIdle)
	if state == fasthttp.StateClosed {
		s.streams.Closed(conn)
	}
}

// SetBounds changes the bounds of requests that come from now on.
func (s *Server) SetBounds(bounds Bounds) { s.bounds.Store(&bounds) }

func (s *Server) maxBody() int { return int(s.bounds.Load().MaxBody) }

func (s *Server) diskTimeout() time.Duration {
	return cmp.Or(s.bounds.Load().DiskTimeout, 30*time.Second)
}

// Serve answers requests from the listener until Shutdown, which closes it, or
// until somebody else does. There may be several at a time.
func (s *Server) Serve(listener net.Listener) error {
	if err := s.serve(s.app.Server(), listener); err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

func (s *Server) serve(server *fasthttp.Server, listener net.Listener) error {
	return s.serveOn(server, &patientListener{Listener: listener, stall: writeStall, encryption: &s.encryption})
}

func (s *Server) serveOn(server *fasthttp.Server, listener *patientListener) error {
	s.ready.Do(func() { s.app.Handler() }) // builds the tree of routes, as Fiber's own Listener would
	// The end of a server that has not begun to listen would be lost on fasthttp.
	defer context.AfterFunc(s.base, func() { _ = listener.Close() })()
	return server.Serve(listener)
}

// Shutdown stops taking connections, those of front doors too, waits for the requests in progress until
// ctx ends, and cancels those that are left.
func (s *Server) Shutdown(ctx context.Context) error {
	err := errors.Join(append(s.shutdownAll(ctx), s.streams.Shutdown(ctx))...)
	s.end()
	s.streams.Close()
	s.tasks.Wait()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("requests were cut short at the end: %w", err)
	}
	return err
}
