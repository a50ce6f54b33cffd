package egress

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Bounds on what user code that finds the port can make of it.
const (
	maxConns      = 64
	headerTimeout = 5 * time.Second
	maxHeader     = 16 << 10
)

// Dial makes a connection for the proxy.
type Dial func(ctx context.Context, host string, port uint16) (net.Conn, error)

// Proxy is an HTTP proxy on the loopback address: CONNECT for any protocol, and
// plain HTTP. Close it.
type Proxy struct {
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
	forward   *httputil.ReverseProxy
	dial      Dial
	password  string

	ctx     context.Context
	cancel  context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // the server, its handlers, and what they have begun
}

const user = "installer"

// StartProxy starts a proxy with a password of its own.
func StartProxy(dial Dial) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the installer: %w", err)
	}
	p := &Proxy{listener: netutil.LimitListener(listener, maxConns), dial: dial, password: rand.Text()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := target(address)
			if err != nil {
				return nil, err
			}
			return p.open(ctx, host, port)
		},
		DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 2,
	}
	silent := log.New(io.Discard, "", 0)
	p.forward = &httputil.ReverseProxy{
		Rewrite:      func(*httputil.ProxyRequest) {}, // the address is in the request line
		Transport:    p.transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
		ErrorLog:     silent,
	}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader, ErrorLog: silent,
		BaseContext: func(net.Listener) context.Context { return p.ctx },
	}
	p.running.Go(func() { _ = p.server.Serve(p.listener) })
	return p, nil
}

// URL is the address of the proxy for whoever shall use it, password included.
func (p *Proxy) URL() string {
	u := url.URL{Scheme: "http", User: url.UserPassword(user, p.password), Host: p.listener.Addr().String()}
	return u.String()
}

// Close ends the proxy and every connection through it, and returns when they
// have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_ = p.server.Close()
	p.transport.CloseIdleConnections()
	p.running.Wait()
}

// enter counts something that Close waits for; false after Close. Who enters must
// call p.running.Done.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Add(1)
	return true
}

// open makes a connection, which is given up when the proxy closes: the transport
// goes on with it when its request has ended.
func (p *Proxy) open(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if !p.enter() {
		return nil, net.ErrClosed
	}
	defer p.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	return p.dial(ctx, host, port)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		return
	}
	defer p.running.Done()
	if !p.knows(r) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="installer"`)
		http.Error(w, "this is the way out of an installation of packages, and of nothing else", http.StatusProxyAuthRequired)
		return
	}
	switch {
	case r.Method == http.MethodConnect:
		p.connect(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		// Else net/http closes the body of the request when the answer begins, and the transport,
		// which may be about to find the end of that body, takes it for broken: golang.org/issue/40747.
		_ = http.NewResponseController(w).EnableFullDuplex()
		p.forward.ServeHTTP(w, r)
	default:
		http.Error(w, "this is a proxy: ask it for http://host/path, or to CONNECT", http.StatusBadRequest)
	}
}

func (p *Proxy) knows(r *http.Request) bool {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+p.password))
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("Proxy-Authorization")), []byte(want)) == 1
}

func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	host, port, err := target(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := p.open(r.Context(), host, port)
	if err != nil {
		refuse(w, err)
		return
	}
	in, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = out.Close()
		refuse(w, err)
		return
	}
	stop := context.AfterFunc(p.ctx, func() {
		_ = in.Close()
		_ = out.Close()
	})
	defer stop()
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		var up sync.WaitGroup
		up.Go(func() {
			_, _ = io.Copy(out, buffered)
			_ = out.Close()
		})
		_, _ = io.Copy(in, out)
		_ = in.Close()
		up.Wait()
	}
	_ = in.Close()
	_ = out.Close()
}

// refuse tells the installer why it gets no connection; it prints the reason.
func refuse(w http.ResponseWriter, err error) {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		http.Error(w, refused.Reason, http.StatusForbidden)
		return
	}
	http.Error(w, err.Error(), http.StatusBadGateway)
}
