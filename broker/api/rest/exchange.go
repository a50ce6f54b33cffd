package rest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/span"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// HeaderRequestID is the client's own name for a request, and ours in the answer.
const HeaderRequestID = "X-Request-Id"

// HeaderTraceParent is the trace that a request belongs to, by the W3C's Trace Context: the
// client's own, and that of the broker's part of it in the answer.
const HeaderTraceParent = "Traceparent"

// exchange is what the log says about one request. It never holds code,
// arguments, variables or tokens.
type exchange struct {
	api       *API
	start     time.Time
	requestID string
	tenant    string
	// remote is the address of the other end of the connection.
	remote string
	// ticket of the connection.
	ticket *admission.Ticket
	// inside names the front door that asks by Call.Inside; empty for other requests.
	inside string
	// outer is the request that it is made for, by Call.Inside; nil for other requests.
	outer *exchange
	// span is nil where there is none.
	span trace.Span
	// admin says that an administrator asks.
	admin bool
	// route is the pattern, not the path: paths hold IDs.
	route string
	// quiet ones are no news.
	quiet bool
	code  sdk.Code
	// streams is set when the request was handed over: its line in the log comes
	// at the end of the stream.
	streams bool
	// keyed requests have an Idempotency-Key.
	keyed bool
	// secret answers are not kept; again is the body that is kept in the place of one,
	// nil for none.
	secret bool
	again  []byte
	// headers of the answer beside the usual ones.
	headers map[string]string
	// atRoot says that the request came where its API is at the root: by a listener of its
	// own, or for a host of its own.
	atRoot bool
	// ownListener says that it came by a listener of the front door's own.
	ownListener bool
	// etag of the answer, empty for none.
	etag string
	// hop is what a peer that has passed the request on has told with it; nil for others.
	hop *peer.Hop
	// stays says that what it makes is made here: who was to make it could not be reached.
	stays bool
	// placed says that the peer that it is passed on to is to make something, and has nothing
	// of it yet.
	placed bool
	// passedTo is the ID of the peer that it was passed on to; empty for none.
	passedTo string
	// scheme is how the client has reached the broker that it knows: http or https.
	scheme string
	// body is what was read before the answer began, of a stream that may be passed on.
	body []byte
}

type exchangeKey struct{}

// doorKey is where a request has the door whose own listener it came by.
type doorKey struct{}

// doorOf is the door whose own listener a request came by; nil for the server's listeners.
func doorOf(fctx *fasthttp.RequestCtx) *API {
	door, _ := fctx.UserValue(doorKey{}).(*API)
	return door
}

// exchangeOf returns the exchange of a request, which observe begins.
func (s *Server) exchangeOf(c *fiber.Ctx) *exchange {
	if x, ok := c.Locals(exchangeKey{}).(*exchange); ok {
		return x
	}
	// Errors of the protocol itself have passed no middleware.
	x := &exchange{
		api: s.apiOf(targetPath(&c.Request().Header)), start: time.Now(), requestID: requestID(c),
		remote: c.Context().RemoteAddr().String(), ticket: admitted(c.Context().Conn()),
	}
	if door := doorOf(c.Context()); door != nil { // whether its path was looked at or not
		x.api, x.atRoot, x.ownListener = door, true, true
	} else {
		x.atRoot = standsAt(hostname(string(c.Request().Header.Host())), x.api)
	}
	if conn, ok := c.Context().Conn().(*insideConn); ok {
		x.outer, x.hop = conn.outer, conn.outer.hop
		x.inside, x.requestID, x.remote = conn.outer.api.opts.Name, conn.outer.requestID, conn.outer.remote
	}
	if hop := hopOf(c.Context()); hop != nil {
		x.ticket.Trust()
		x.ticket = nil // it counts for no tenant: its peer has others' calls on it next
		x.hop, x.remote, x.inside = hop, hop.Remote, hop.Inside
	}
	x.scheme = schemeOf(c.Context())
	c.Locals(exchangeKey{}, x)
	c.Set(HeaderRequestID, x.requestID)
	return x
}

// asked says in a context which request its work is for.
func (x *exchange) asked(ctx context.Context) context.Context {
	cause := origin.Request
	if x.admin {
		cause = origin.Admin
	}
	if x.span != nil {
		ctx = trace.ContextWithSpan(ctx, x.span)
	}
	// A key is with the broker that was asked with it.
	ctx = peer.WithPlacing(ctx, x.api.server.opts.Peers != nil && x.hop == nil && !x.keyed && !x.stays)
	return origin.With(ctx, origin.Origin{Cause: cause, Tenant: x.tenant, RequestID: x.requestID, Remote: x.remote, FrontDoor: cmp.Or(x.inside, x.api.opts.Name)})
}

// contextOf returns the context of a request: it ends with its deadline, when
// the client goes away (unless it left an Idempotency-Key), and when the server is
// closed. Neither Fiber nor fasthttp has one: theirs end for all requests when a
// shutdown begins, and never for a client. The cancel function must be called before the
// handler returns: nothing touches the connection after it.
func (s *Server) contextOf(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(s.exchangeOf(c).asked(s.base), s.requestTimeout())
	if s.exchangeOf(c).keyed {
		return ctx, cancel // its answer is kept for the client's return
	}
	stop := s.watchClient(c.Context().Conn(), cancel)
	return ctx, sync.OnceFunc(func() {
		stop()
		cancel()
	})
}

func (s *Server) requestTimeout() time.Duration { return s.bounds.Load().RequestTimeout }

// watchClient calls gone when the client has gone, until stop is called. Where that cannot
// be found out it is the deadline that ends a request.
func (s *Server) watchClient(conn net.Conn, gone func()) (stop func()) {
	stop = func() {}
	if inside, ok := conn.(*insideConn); ok {
		forget := context.AfterFunc(inside.gone, gone)
		return func() { forget() }
	}
	hangups := s.clients()
	if secure, ok := conn.(*secureConn); ok {
		conn = secure.socket
	}
	socket, ok := conn.(syscall.Conn)
	if hangups == nil || !ok {
		return stop
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		var forget func()
		if forget, err = hangups.watch(raw, gone); err == nil {
			return forget
		}
	}
	if errors.Is(err, net.ErrClosed) {
		gone()
	} else {
		s.opts.Logger.Error("whether a client has gone cannot be told", "error", err)
	}
	return stop
}

// clients returns what watches clients, which begins with the first request; nil if the
// system does not let it.
func (s *Server) clients() *hangups {
	s.watching.Do(func() {
		h, err := newHangups()
		if err != nil {
			s.opts.Logger.Error("clients that go cannot be noticed; their requests end by themselves", "error", err)
			return
		}
		s.hangups = h
		s.tasks.Go("watch the clients", func() {
			if err := h.run(s.base); err != nil {
				s.opts.Logger.Error("clients that go are not noticed any more", "error", err)
			}
		})
	})
	return s.hangups
}

// observe surrounds every request: it gives it an ID, turns errors and panics
// into problems and writes the line in the log.
func (s *Server) observe(c *fiber.Ctx) error {
	x := s.exchangeOf(c)
	err := next(c)
	if x.stays { // it is the way in again, from here
		return err
	}
	if to, ok := x.elsewhere(err); ok {
		if err = s.passOn(c, x, to); err != nil && !x.streams && x.isLeft(err) {
			err = c.RestartRouting()
		}
	}
	if err != nil {
		x.code = answerError(c, x, err)
	}
	if !x.streams {
		s.log(x, method(c), c.Response().StatusCode(), err)
	}
	return nil
}

// elsewhere finds the peer that a request is to be passed on to, by the error that its
// handler has come to.
func (x *exchange) elsewhere(err error) (to peer.Peer, ok bool) {
	to, ok = peer.Of(err)
	x.placed = peer.WasPlaced(err)
	return to, ok && x.api.server.passesOn(x)
}

// isLeft reports whether a request is this broker's after all, by the error of passing it on:
// the peer that was to make something has not heard of it.
func (x *exchange) isLeft(err error) bool {
	x.stays = x.placed && x.hop == nil && peer.Unreached(err)
	if x.stays {
		x.passedTo = ""
	}
	return x.stays
}

// passOn has a request answered by a peer that Fiber has not answered.
func (s *Server) passOn(c *fiber.Ctx, x *exchange, to peer.Peer) error {
	if s.mayBeShort(c) {
		return s.passShortOn(c, x, to)
	}
	return s.handOver(c, func(w http.ResponseWriter, r *http.Request) error { return s.forward(w, r, x, to) })
}

// keepBody keeps what a handler has read, until its answer begins: it may be a peer's.
func (x *exchange) keepBody(c *fiber.Ctx) {
	if x.api.server.passesOn(x) {
		x.body = append([]byte{}, c.BodyRaw()...)
	}
}

// next runs the rest of the chain and turns a panic into an error.
func next(c *fiber.Ctx) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return c.Next()
}

// protocolError answers what fasthttp objects to before a request reaches the
// middleware. It is Fiber's error handler.
func (s *Server) protocolError(c *fiber.Ctx, err error) error {
	x, header := s.exchangeOf(c), &c.Context().Request.Header
	who, arrived := s.arrivals.caller(header)
	if s.arrivals.release(header) {
		linger(c.Context().Conn())
		err = errTooManyBodies
	}
	if e, ok := errors.AsType[*fiber.Error](err); ok && e.Code == http.StatusRequestEntityTooLarge {
		linger(c.Context().Conn())
		// With a token the body may be small enough. fasthttp has forgotten
		// the headers if the body was chunked.
		if len(header.RawHeaders()) > 0 {
			if !arrived {
				who = x.api.authenticate(header)
			}
			if !who.known && !who.admin {
				err = who.stranger()
			}
		}
	}
	x.code = answerError(c, x, err)
	if x.ticket.Displaced() {
		return nil // nobody has asked for anything
	}
	s.log(x, method(c), c.Response().StatusCode(), err)
	return nil
}

// log writes the line about an answered request and counts it.
func (s *Server) log(x *exchange, method string, status int, err error) {
	took := time.Since(x.start)
	if s.opts.Meter != nil {
		s.opts.Meter.Request(x.asked(s.base), method, x.route, status, x.code, took)
	}
	x.endSpan(status)
	fields := []any{
		"request_id", x.requestID, "tenant", x.tenant, "method", method, "route", x.route,
		"status", status, "code", string(x.code), "duration", took.Round(time.Microsecond).String(),
	}
	if x.passedTo != "" {
		fields = append(fields, "passed_on_to", x.passedTo)
	}
	if x.hop != nil {
		fields = append(fields, "passed_on_by", x.hop.From)
	}
	failed := status >= http.StatusInternalServerError && err != nil
	switch {
	case x.quiet:
		if failed {
			fields = append(fields, "error", err)
		}
		s.opts.Logger.Debug("request", fields...)
	case failed && x.code != sdk.CodeNotSupported: // which is the caller's mistake
		s.opts.Logger.Error("request", append(fields, "error", err)...)
	default:
		s.opts.Logger.Info("request", fields...)
	}
}

// method names the request's method in the log, where a client could otherwise
// write what it likes.
func method(c *fiber.Ctx) string {
	m := string(c.Request().Header.Method())
	if len(m) > 16 || strings.ContainsFunc(m, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		return "?"
	}
	return m
}

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// requestID takes the client's own ID if nothing can be forged with it.
func requestID(c *fiber.Ctx) string {
	if id := c.Get(HeaderRequestID); requestIDForm.MatchString(id) {
		return strings.Clone(id)
	}
	return rand.Text()
}

// beginSpan begins the span of a request whose caller is known. What strangers send costs
// nothing and is not read.
func (s *Server) beginSpan(c *fiber.Ctx, x *exchange) {
	if s.opts.Tracer == nil {
		return
	}
	ctx, parent := s.base, ""
	if x.outer != nil && x.outer.span != nil {
		ctx = trace.ContextWithSpan(ctx, x.outer.span)
	} else if sent := c.Context().Request.Header.PeekAll(HeaderTraceParent); len(sent) == 1 {
		parent = string(sent[0])
	}
	verb := method(c)
	ctx = s.opts.Tracer.Begin(ctx, parent, x.start, verb+" "+x.route, x.tenant,
		semconv.HTTPRequestMethodKey.String(verb), semconv.HTTPRoute(x.route), span.RequestID.String(x.requestID), span.FrontDoor.String(x.api.opts.Name))
	begun := trace.SpanFromContext(ctx)
	if !begun.SpanContext().IsValid() {
		return
	}
	x.span = begun
	c.Set(HeaderTraceParent, traceParent(begun))
}

// traceParent is the header that names a span.
func traceParent(s trace.Span) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s), carrier)
	return carrier["traceparent"]
}

// endSpan says in the span of a request how that was answered.
func (x *exchange) endSpan(status int) {
	if x.span == nil {
		return
	}
	x.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	if x.code != "" {
		x.span.SetAttributes(span.Code.String(string(x.code)))
	}
	if status >= http.StatusInternalServerError {
		x.span.SetStatus(codes.Error, string(x.code))
	}
	x.span.End()
}
