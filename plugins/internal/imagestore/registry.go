package imagestore

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

// Bounds of what an image may say of itself, in bytes, and of the redirects of a registry.
const (
	maxManifest  = 4 << 20 // what registries take
	maxConfig    = 8 << 20
	maxRedirects = 10
)

// Bounds of the time that a registry takes: at least leastBytes come in patience, for as
// long as there is something to come.
const (
	patience   = time.Minute
	leastBytes = 256 << 10
)

// registry reaches one registry, the one that the operator has named, and what that one
// leads to: of those, only addresses of the open Internet, over HTTPS.
type registry struct {
	named    string // host and port
	insecure bool   // it may be reached over HTTP
	// literal says that the operator has named an address, and not a host, which leads
	// anywhere that its owner likes.
	literal  bool
	login    *Login // nil for none
	patience time.Duration
	proxies  sync.Map // of the operator, by host and port
	inner    *http.Transport
}

func reach(of name.Registry) *registry {
	r := &registry{named: of.RegistryStr(), insecure: of.Scheme() == "http", patience: patience}
	if host, _, err := net.SplitHostPort(r.named); err == nil {
		_, err = netip.ParseAddr(host)
		r.literal = err == nil
	} else {
		_, err = netip.ParseAddr(strings.Trim(r.named, "[]"))
		r.literal = err == nil
	}
	r.inner = &http.Transport{
		Proxy: r.proxy, DialContext: r.dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 1 << 20,
	}
	return r
}

func (r *registry) close() { r.inner.CloseIdleConnections() }

// isNamed reports whether an address is that of the registry.
func (r *registry) isNamed(address string) bool {
	if address == r.named {
		return true
	}
	return address == withPort(r.named, "443") || r.insecure && address == withPort(r.named, "80")
}

// withPort is a host with a port, unless it has one.
func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// defaultPorts of the schemes of URLs.
var defaultPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

func (r *registry) proxy(req *http.Request) (*url.URL, error) {
	through, err := http.ProxyFromEnvironment(req)
	if err == nil && through != nil {
		r.proxies.Store(withPort(through.Host, defaultPorts[through.Scheme]), true)
	}
	return through, err
}

func (r *registry) dial(ctx context.Context, network, address string) (net.Conn, error) {
	allowed := gateway.Open
	if _, proxy := r.proxies.Load(address); proxy || r.literal && r.isNamed(address) {
		allowed = func(netip.Addr) bool { return true }
	} else if r.isNamed(address) {
		allowed = func(a netip.Addr) bool { return gateway.Open(a) || gateway.Private(a) }
	}
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: func(_, to string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(to); err != nil || !allowed(at.Addr()) {
			return elsewhere(address)
		}
		return nil
	}}
	return dialer.DialContext(ctx, network, address)
}

func elsewhere(address string) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be used: its registry leads to %s, which is not on the open Internet, or not over HTTPS", clipped(address))
}

// RoundTrip implements http.RoundTripper.
func (r *registry) RoundTrip(req *http.Request) (*http.Response, error) {
	redirects, manifest := 0, isManifest(req)
	for was := req.Response; was != nil && was.Request != nil; was = was.Request.Response {
		redirects++
		manifest = manifest || isManifest(was.Request)
	}
	address := withPort(req.URL.Host, defaultPorts[req.URL.Scheme])
	at, literal := netip.ParseAddr(req.URL.Hostname())
	var err error
	switch named := r.isNamed(address); {
	case redirects > maxRedirects:
		err = sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be used: its registry leads from one place to another more than %d times", maxRedirects)
	case req.URL.Scheme != "https" && (!named || !r.insecure), !named && literal == nil && !gateway.Open(at):
		err = elsewhere(address)
	}
	sent := req
	if err == nil {
		sent, err = r.guarded(req, address)
	}
	if err != nil {
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close())
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	body := &hurried{ctx: ctx, end: cancel, patience: r.patience, left: r.patience}
	body.timer = time.AfterFunc(r.patience, func() { cancel(errSlow) })
	response, err := r.inner.RoundTrip(sent.WithContext(ctx))
	body.timer.Stop()
	if err != nil {
		err = body.reason(err)
		cancel(nil)
		return nil, err
	}
	body.from = response.Body
	response.Body = body
	if manifest {
		response.Body = readCloser{&atMost{from: body, left: maxManifest}, body}
	}
	return response, nil
}

func isManifest(req *http.Request) bool { return strings.Contains(req.URL.Path, "/manifests/") }

var errSlow = errors.New("the registry is too slow")

// hurried is a body that must come in time. What its reader takes between two reads does
// not count.
type hurried struct {
	from           io.ReadCloser
	ctx            context.Context
	end            context.CancelCauseFunc
	timer          *time.Timer
	patience, left time.Duration
	got            int // since left was patience
}

func (h *hurried) Read(p []byte) (int, error) {
	begin := time.Now()
	h.timer.Reset(h.left)
	n, err := h.from.Read(p)
	h.timer.Stop()
	h.left -= time.Since(begin)
	if h.got += n; h.got >= leastBytes {
		h.got, h.left = 0, h.patience
	}
	return n, h.reason(err)
}

// reason is that the registry is slow, if that is why a request ended.
func (h *hurried) reason(err error) error {
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(h.ctx), errSlow) {
		return errSlow
	}
	return err
}

func (h *hurried) Close() error {
	h.timer.Stop()
	err := h.from.Close()
	h.end(nil)
	return err
}

// atMost reads until there was too much.
type atMost struct {
	from io.Reader
	left int
}

func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.from.Read(p)
	if a.left -= n; a.left < 0 {
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be used: its manifest has more than %d bytes", maxManifest)
	}
	return n, err
}
