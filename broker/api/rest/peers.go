package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
)

// Where several brokers are one, each takes any call. What concerns an instance of another
// is found out by the handler: a peer.ElsewhereError from it, before the answer has begun and
// before anything of a body was read that streams, has the call passed on as it came. The
// owner authenticates it again and carries it out; its answer is the client's. A call that a
// peer has passed on is not passed on again.

// Peers pass calls on; *peer.Forwarder does.
type Peers interface {
	// Forward has w answered by a peer. The error, after which nothing was written if the
	// answer had not begun, says why that did not work.
	Forward(w http.ResponseWriter, r *http.Request, to peer.Peer, call peer.Call) error
	// Short is Forward for an answer of at most that many bytes. Any other is rest, of which
	// nothing was written, for Relay.
	Short(w http.ResponseWriter, r *http.Request, to peer.Peer, call peer.Call, most int64) (rest *http.Response, err error)
	Relay(w http.ResponseWriter, r *http.Request, to peer.Peer, rest *http.Response) error
}

// Questions answers what peers ask in nobody's name; peer.Answers does.
type Questions interface {
	Answer(ctx context.Context, about string, question []byte) ([]byte, error)
}

// hopKey is where a request has what a peer has told with it.
type hopKey struct{}

// hopOf is what a peer has told with a request; nil for those of clients.
func hopOf(fctx *fasthttp.RequestCtx) *peer.Hop {
	hop, _ := fctx.UserValue(hopKey{}).(*peer.Hop)
	return hop
}

// schemeOf is how the client has reached the broker that it knows.
func schemeOf(fctx *fasthttp.RequestCtx) string {
	if hop := hopOf(fctx); hop != nil {
		return hop.Scheme
	}
	if conn, ok := fctx.Conn().(*insideConn); ok && conn.outer.hop != nil {
		return conn.outer.hop.Scheme
	}
	if fctx.IsTLS() {
		return "https"
	}
	return "http"
}

// passesOn reports whether a request may be passed on: one of a client, or one that a peer has
// passed on to have something made here which another broker had faster.
func (s *Server) passesOn(x *exchange) bool {
	return s.opts.Peers != nil && (x.hop == nil || x.hop.Placed)
}

// passStreamOn has a stream answered by a peer whose handler has returned err without an
// answer. It returns err itself where a part of the body is lost.
func (s *Server) passStreamOn(w *streamWriter, r *http.Request, x *exchange, to peer.Peer, err error) error {
	if w.status != 0 {
		return err
	}
	if !untouched(r) {
		return err
	}
	return callStream(w, r, func(w http.ResponseWriter, r *http.Request) error { return s.forward(w, r, x, to) })
}

// forward passes a request on whose answer streams.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, x *exchange, to peer.Peer) error {
	return s.opts.Peers.Forward(w, r, to, x.passed(r.RequestURI, x.body, to))
}

// passed is a request as it is passed on.
func (x *exchange) passed(target string, body []byte, to peer.Peer) peer.Call {
	x.passedTo = to.ID
	placed := x.placed && x.hop == nil
	call := peer.Call{
		Target: x.targetAsSent(target), Body: body, RequestID: x.requestID,
		Hop: peer.Hop{Remote: x.remote, Scheme: x.scheme, Inside: x.inside, Placed: placed},
	}
	if x.ownListener {
		call.Hop.Door = x.api.opts.Name
	}
	if x.span != nil {
		call.TraceParent = traceParent(x.span)
	}
	return call
}

// shortAnswer is how many bytes an answer may have that is kept until it is whole. The
// client's connection lives on behind it, which it does not behind one that streams.
const shortAnswer = 256 << 10

// handOverTime is how long an answer that is not short waits for who passes it on.
const handOverTime = 10 * time.Second

// mayBeShort reports whether the answer of a request may be a short one, and whether the
// request itself is in memory.
func (s *Server) mayBeShort(c *fiber.Ctx) bool {
	header := &c.Request().Header
	return c.Method() != http.MethodHead && len(header.Peek(fiber.HeaderUpgrade)) == 0 && !s.streams.Held(header)
}

// passShortOn waits for a peer's answer, and gives it as Fiber gives its own if it is short.
func (s *Server) passShortOn(c *fiber.Ctx, x *exchange, to peer.Peer) error {
	ctx, cancel := context.WithCancel(x.asked(s.base))
	stop := s.watchClient(c.Context().Conn(), cancel)
	w := &shortWriter{header: http.Header{}}
	call := x.passed(string(c.Request().RequestURI()), append([]byte{}, c.BodyRaw()...), to)
	rest, err := s.opts.Peers.Short(w, requestOf(ctx, c), to, call, shortAnswer) //nolint:bodyclose // Relay closes it, or we do
	stop()                                                                       // nothing touches the connection when this has returned
	if rest == nil {
		cancel()
		if err == nil {
			w.answer(c)
		}
		return err
	}
	c.Request().ResetBody() // else it is kept as long as the stream
	// A client that is gone by then is not answered, and nobody is called.
	unused := time.AfterFunc(handOverTime, cancel)
	err = s.handOver(c, func(w http.ResponseWriter, r *http.Request) error {
		defer cancel()
		defer context.AfterFunc(r.Context(), cancel)()
		unused.Stop()
		return s.opts.Peers.Relay(w, r, to, rest)
	})
	if err != nil {
		cancel()
		_ = rest.Body.Close()
	}
	return err
}

// requestOf is a request as net/http has it, without its body.
func requestOf(ctx context.Context, c *fiber.Ctx) *http.Request {
	r := &http.Request{
		Method: c.Method(), URL: &url.URL{Path: "/"}, Host: string(c.Request().Header.Host()),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody,
	}
	for name, value := range c.Request().Header.All() {
		switch field := http.CanonicalHeaderKey(string(name)); field {
		case fiber.HeaderHost, fiber.HeaderContentLength, fiber.HeaderTransferEncoding, fiber.HeaderTrailer, fiber.HeaderExpect: // of the body, which is there
		default:
			r.Header.Add(field, string(value))
		}
	}
	return r.WithContext(ctx)
}

// shortWriter keeps an answer until it is whole.
type shortWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *shortWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. What comes before the answer is not kept.
func (w *shortWriter) WriteHeader(status int) {
	if status >= http.StatusOK && w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *shortWriter) Write(p []byte) (int, error) { return w.body.Write(p) }

// Flush implements http.Flusher: there is nobody to flush to.
func (w *shortWriter) Flush() {}

// answer gives the answer to Fiber.
func (w *shortWriter) answer(c *fiber.Ctx) {
	header := &c.Response().Header
	header.SetNoDefaultContentType(true)
	for name, values := range w.header {
		for i, value := range values {
			if i == 0 {
				header.Set(name, value)
			} else {
				header.Add(name, value)
			}
		}
	}
	c.Status(w.status)
	c.Response().SetBodyRaw(w.body.Bytes())
}

// targetAsSent is a target as the client has written it, before it was led to the routes of
// a front door.
func (x *exchange) targetAsSent(target string) string {
	a := x.api
	rest, led := below(target, a.prefix)
	switch {
	case a.opts.Name == "" || !led:
		return originForm(target)
	case x.atRoot:
		return originForm(rest)
	default:
		return a.MountedAt() + rest
	}
}

// watchedBody knows whether anything was read of it.
type watchedBody struct {
	io.ReadCloser
	touched atomic.Bool
}

// watchBody watches the body of a request that may be passed on.
func (s *Server) watchBody(r *http.Request, x *exchange) {
	if r.Body != nil && r.Body != http.NoBody && s.passesOn(x) {
		r.Body = &watchedBody{ReadCloser: r.Body}
	}
}

// untouched reports whether nothing of a body is lost.
func untouched(r *http.Request) bool {
	body, watched := r.Body.(*watchedBody)
	return !watched || !body.touched.Load()
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	return b.ReadCloser.Read(p)
}

// PeerServer answers what peers pass on, with the routes, the front doors, the bounds and the
// log of its Server. It serves nobody but peers: they have certificates of the authorities
// that SetTLS names.
type PeerServer struct {
	server *Server
	http   *fasthttp.Server
}

// newPeerServer is called when the server itself is complete.
func newPeerServer(s *Server) *PeerServer {
	p := &PeerServer{server: s}
	usual := s.app.Server()
	p.http = &fasthttp.Server{
		Handler: func(fctx *fasthttp.RequestCtx) { p.lead(fctx, usual.Handler) },
		ErrorHandler: func(fctx *fasthttp.RequestCtx, err error) {
			p.lead(fctx, func(fctx *fasthttp.RequestCtx) { usual.ErrorHandler(fctx, err) })
		},
		HeaderReceived: func(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
			hop, err := peer.ParseHop(string(header.Peek(peer.HeaderXBrokerHop)))
			if err != nil {
				return fasthttp.RequestConfig{MaxRequestBodySize: 1} // it is refused
			}
			if hop.About != "" {
				s.arrivals.release(header) // as headerReceived does
				return fasthttp.RequestConfig{MaxRequestBodySize: maxQuestion}
			}
			return s.headerReceived(header, s.doorNamed(hop.Door), true)
		},
		ConnState: usual.ConnState,

		Logger: usual.Logger, LogAllErrors: usual.LogAllErrors,
		Name: usual.Name, NoDefaultServerHeader: usual.NoDefaultServerHeader,
		Concurrency: usual.Concurrency, MaxRequestBodySize: usual.MaxRequestBodySize,
		ReadTimeout: usual.ReadTimeout, WriteTimeout: usual.WriteTimeout, IdleTimeout: usual.IdleTimeout,
		ReadBufferSize: usual.ReadBufferSize + hopSize, WriteBufferSize: usual.WriteBufferSize,
		DisablePreParseMultipartForm: usual.DisablePreParseMultipartForm,
	}
	return p
}

// hopSize is how much larger the head of a request is that was passed on, in bytes.
const hopSize = 4 << 10

// lead takes what a peer has told with a request off it, so that programs in sandboxes do not
// see it, and leads the request where it would have led there.
func (p *PeerServer) lead(fctx *fasthttp.RequestCtx, next fasthttp.RequestHandler) {
	header := &fctx.Request.Header
	hop, err := peer.ParseHop(string(header.Peek(peer.HeaderXBrokerHop)))
	if err != nil {
		fctx.SetConnectionClose()
		fctx.Error(err.Error(), http.StatusBadRequest)
		return
	}
	if hop.About != "" {
		p.answer(fctx, hop.About)
		return
	}
	header.Del(peer.HeaderXBrokerHop)
	fctx.SetUserValue(hopKey{}, &hop)
	if door := p.server.doorNamed(hop.Door); door != nil {
		fctx.SetUserValue(doorKey{}, door)
	}
	next(fctx)
}

// maxQuestion bounds what a peer asks itself, in bytes.
const maxQuestion = 1 << 20

// answer answers what a peer asks itself. That it is one its certificate has said; whatever
// clients send in the header of the hop is replaced by who passes their calls on.
func (p *PeerServer) answer(fctx *fasthttp.RequestCtx, about string) {
	if p.server.opts.Questions == nil {
		fctx.Error("this broker answers no questions", http.StatusNotFound)
		return
	}
	text, err := p.server.opts.Questions.Answer(p.server.base, about, fctx.PostBody())
	if err != nil {
		fctx.Error(err.Error(), http.StatusInternalServerError)
		return
	}
	fctx.SetContentType(fiber.MIMEApplicationJSON)
	fctx.SetBody(text)
}

// doorNamed is the front door of that name; nil for none.
func (s *Server) doorNamed(name string) *API {
	if own := s.Own(name); own != nil {
		return own.api
	}
	return nil
}

// ForPeers serves what peers pass on.
func (s *Server) ForPeers() *PeerServer { return s.peers }

// SetTLS changes how the broker and its peers know each other, for connections that come from
// now on. With nil, or without authorities, none may come.
func (p *PeerServer) SetTLS(t *TLS) {
	if t == nil || t.ClientCAs == nil {
		p.server.peerEncryption.Store(nil)
		return
	}
	config := encryption(t)
	config.MinVersion = tls.VersionTLS13
	p.server.peerEncryption.Store(config)
}

// Serve answers requests from the listener until Shutdown, of this or of the Server, or until
// somebody closes it. There may be several at a time.
func (p *PeerServer) Serve(listener net.Listener) error {
	if err := p.server.serveOn(p.http, &patientListener{Listener: listener, stall: writeStall, encryption: &p.server.peerEncryption, secretly: true}); err != nil {
		return fmt.Errorf("serve the peers: %w", err)
	}
	return nil
}

// Shutdown stops taking connections and waits for the requests in progress until ctx ends.
// Those that stream go on until the Server's Shutdown.
func (p *PeerServer) Shutdown(ctx context.Context) error { return p.http.ShutdownWithContext(ctx) }
