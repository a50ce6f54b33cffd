package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Identity is how a broker and its peers know each other.
type Identity struct {
	// Certificate is shown to peers, as a server and as a client.
	Certificate tls.Certificate
	// Authorities have signed the certificates of all peers, and of nobody else.
	Authorities *x509.CertPool
}

// Forwarder passes calls on. Its methods may be called concurrently.
type Forwarder struct {
	id      string
	watches *watches

	mu        sync.Mutex
	transport *http.Transport // nil while there is no identity
}

const (
	// dialTimeout and handshakeTimeout are short: a peer is near, and one that does not
	// answer is soon known to be dead.
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
	// A connection whose other end is gone without a word ends after about 30 s.
	keepAliveIdle, keepAliveInterval, keepAliveCount = 15 * time.Second, 5 * time.Second, 3
	// idleTimeout is shorter than the one of who listens: a request is not sent into a
	// connection that is being closed.
	idleTimeout = time.Minute
	// maxIdle connections are kept open to one peer. In use there are as many as there are
	// calls under way, which the connections of clients bound.
	maxIdle = 64
	// continueTimeout is how long a body waits for the owner that a client sends only when it
	// is asked to.
	continueTimeout = 30 * time.Second
	// bufferSize is that of the pieces in which bodies go through, in bytes.
	bufferSize = 32 << 10
)

// NewForwarder returns a forwarder of the broker with that ID. It passes nothing on before it
// has an identity. living may be nil: then a call at a peer that stands still goes on as long as
// the client waits.
func NewForwarder(id string, living Living) *Forwarder {
	return &Forwarder{id: id, watches: newWatches(living)}
}

// SetIdentity changes how the broker is known to its peers, for calls that come from now on.
// nil means that nothing is passed on.
func (f *Forwarder) SetIdentity(i *Identity) {
	var next *http.Transport
	if i != nil {
		dialer := net.Dialer{
			Timeout:         dialTimeout,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount},
		}
		next = &http.Transport{
			DialContext: dialer.DialContext,
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.Certificate}, RootCAs: i.Authorities,
				NextProtos: []string{"http/1.1"}, // over HTTP/2 nothing could be upgraded
			},
			TLSHandshakeTimeout:   handshakeTimeout,
			DisableCompression:    true, // what is compressed stays so
			MaxIdleConnsPerHost:   maxIdle,
			IdleConnTimeout:       idleTimeout,
			ExpectContinueTimeout: continueTimeout,
			WriteBufferSize:       bufferSize,
			ReadBufferSize:        bufferSize,
		}
	}
	f.mu.Lock()
	old := f.transport
	f.transport = next
	f.mu.Unlock()
	if old != nil {
		old.CloseIdleConnections()
	}
}

// Close closes the connections that nobody uses, and returns when the calls under way have
// ended. Nothing is passed on afterwards.
func (f *Forwarder) Close() {
	f.SetIdentity(nil)
	f.watches.close()
}

// maxAnswer bounds the answer to a question, in bytes.
const maxAnswer = 256 << 20

// Ask puts a question to a peer, and returns its answer.
func (f *Forwarder) Ask(ctx context.Context, to Peer, about string, question []byte) ([]byte, error) {
	f.mu.Lock()
	transport := f.transport
	f.mu.Unlock()
	if transport == nil {
		return nil, errors.New("this broker speaks with no others: it has no block peers")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+to.Address+"/", bytes.NewReader(question))
	if err != nil {
		return nil, fmt.Errorf("ask broker %q at %q: %w", to.ID, to.Address, err)
	}
	req.Header.Set(HeaderXBrokerHop, Hop{From: f.id, About: about}.String())
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("ask broker %q at %s: %w", to.ID, to.Address, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask broker %q at %s: %w", to.ID, to.Address, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("ask broker %q at %s: it answers %d: %.200q", to.ID, to.Address, resp.StatusCode, text)
	}
	return text, nil
}

// Call is a call as it is passed on.
type Call struct {
	// Target is the path with the query, as the client has sent it.
	Target string
	// Body is what the client has sent, where that was read already; nil leaves it to the
	// request.
	Body []byte
	// RequestID and TraceParent are those that the first broker has given the call. The
	// latter is empty where the client's own holds.
	RequestID, TraceParent string
	Hop                    Hop
}

const (
	headerRequestID   = "X-Request-Id"
	headerTraceParent = "Traceparent"
)

// errBrokenOff is what became of a call that has reached its owner. What it has done there
// nobody knows.
var errBrokenOff = sdk.Errorf(sdk.CodeUnavailable, "The broker that has it broke off the answer. What was asked for may have been done.")

// Forward asks a peer what r asks, and gives w exactly its answer, as it comes. The error,
// after which w is as it was if the answer had not begun, carries SB009, or is that of the
// request's context.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, to Peer, call Call) error {
	proxy, err := f.proxy(to, call)
	if err != nil {
		return err
	}
	clear(w.Header()) // the answer brings all of its own
	ctx, done := f.watches.follow(r.Context(), to.ID)
	defer done()
	return serve(proxy, w, r.WithContext(ctx), to)
}

// Short is Forward for an answer of at most that many bytes, whose length is known when it
// begins. Of any other answer nothing was written: rest is that then, for Relay, until the
// request's context ends.
func (f *Forwarder) Short(w http.ResponseWriter, r *http.Request, to Peer, call Call, most int64) (rest *http.Response, err error) {
	proxy, err := f.proxy(to, call)
	if err != nil {
		return nil, err
	}
	proxy.ModifyResponse = func(resp *http.Response) error {
		if resp.StatusCode != http.StatusSwitchingProtocols && resp.ContentLength >= 0 && resp.ContentLength <= most && len(resp.Trailer) == 0 {
			return nil
		}
		taken := *resp
		rest, resp.Body = &taken, http.NoBody // ReverseProxy closes what it has
		return errTaken
	}
	ctx, done := f.watches.follow(r.Context(), to.ID)
	if err = serve(proxy, w, r.WithContext(ctx), to); rest != nil {
		context.AfterFunc(r.Context(), done) // the rest of the answer is to come
		return rest, nil
	}
	done()
	return nil, err
}

var errTaken = errors.New("the answer is not short")

// Relay goes on with an answer that was not short.
func (f *Forwarder) Relay(w http.ResponseWriter, r *http.Request, to Peer, rest *http.Response) error {
	clear(w.Header())
	return serve(&httputil.ReverseProxy{
		Transport: given{rest}, BufferPool: &buffers, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(*httputil.ProxyRequest) {},
	}, w, r, to)
}

// given is an answer that is there already.
type given struct{ resp *http.Response }

// RoundTrip implements http.RoundTripper.
func (g given) RoundTrip(*http.Request) (*http.Response, error) { return g.resp, nil }

// proxy asks a peer.
func (f *Forwarder) proxy(to Peer, call Call) (*httputil.ReverseProxy, error) {
	f.mu.Lock()
	transport := f.transport
	f.mu.Unlock()
	if transport == nil {
		return nil, Elsewhere(to)
	}
	call.Hop.From = f.id
	return &httputil.ReverseProxy{
		Transport: transport, BufferPool: &buffers,
		ErrorLog: log.New(io.Discard, "", 0), // the error is returned
		Rewrite: func(p *httputil.ProxyRequest) {
			call.rewrite(p, to)
			call.Body = nil // the answer may go on for long
		},
	}, nil
}

// serve has a proxy answer, and returns what went wrong.
func serve(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request, to Peer) (err error) {
	var failure error
	proxy.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { failure = err }
	if r.Context().Value(http.ServerContextKey) == nil { // else ReverseProxy keeps to itself that a body ended early
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{}))
	}
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler: // the way in which ReverseProxy says that a body ended early
			err = because(r.Context(), to, errors.New("the body of the answer ended early"))
		default:
			panic(v)
		}
	}()
	// Else net/http closes the body of the request when the answer begins, and the transport,
	// which may be about to find the end of that body, takes it for broken: golang.org/issue/40747.
	_ = http.NewResponseController(w).EnableFullDuplex() // a short answer has another writer, which does not do so
	proxy.ServeHTTP(w, r)
	if failure != nil {
		return because(r.Context(), to, failure)
	}
	return nil
}

// rewrite makes of the request what the peer gets: the same, with the hop.
func (c Call) rewrite(p *httputil.ProxyRequest, to Peer) {
	path, query, ask := strings.Cut(c.Target, "?")
	// Opaque is sent as it is: an escaped slash stays one.
	p.Out.URL = &url.URL{Scheme: "https", Host: to.Address, Opaque: path, RawQuery: query, ForceQuery: ask && query == ""}
	if strings.HasPrefix(path, "//") { // net/url would write the scheme before it
		p.Out.URL.Opaque, p.Out.URL.RawPath = "", path
		p.Out.URL.Path, _ = url.PathUnescape(path)
	}
	p.Out.Host = p.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} { // ReverseProxy has removed them
		if values := p.In.Header.Values(name); len(values) > 0 {
			p.Out.Header[name] = values
		}
	}
	p.Out.Header.Set(HeaderXBrokerHop, c.Hop.String())
	p.Out.Header.Set(headerRequestID, c.RequestID)
	if c.TraceParent != "" {
		p.Out.Header.Set(headerTraceParent, c.TraceParent)
	}
	if c.Body != nil {
		p.Out.ContentLength, p.Out.TransferEncoding = int64(len(c.Body)), nil
		p.Out.Body = http.NoBody
		if len(c.Body) > 0 {
			p.Out.Body = &onceBody{left: c.Body}
		}
	}
}

// onceBody is a body that is not kept when it was sent.
type onceBody struct {
	mu   sync.Mutex
	left []byte
}

func (b *onceBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := copy(p, b.left)
	if b.left = b.left[n:]; len(b.left) > 0 {
		return n, nil
	}
	b.left = nil
	return n, io.EOF
}

func (b *onceBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = nil
	return nil
}

// because says why a call was not answered by its owner.
func because(ctx context.Context, to Peer, err error) error {
	silent := errors.Is(context.Cause(ctx), errSilent)
	if ctx.Err() != nil && !silent {
		return ctx.Err()
	}
	if Unreached(err) {
		return fmt.Errorf("pass on to broker %q at %s: %w: %w", to.ID, to.Address, unavailable("Another broker has it, which cannot be reached at this moment."), err)
	}
	if silent || errors.Is(err, syscall.ETIMEDOUT) { // the latter says the keepalive
		return fmt.Errorf("pass on to broker %q at %s: %w: %w", to.ID, to.Address, errSilent, err)
	}
	return fmt.Errorf("pass on to broker %q at %s: %w: %w", to.ID, to.Address, errBrokenOff, err)
}

// Unreached reports whether the peer has certainly not seen a call, by the error of passing it
// on.
func Unreached(err error) bool {
	if Has(err) { // nothing is passed on at all
		return true
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	return strings.Contains(err.Error(), "TLS handshake timeout")
}

// buffers are those of all bodies that go through.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, bufferSize)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }
