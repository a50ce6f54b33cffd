package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// client is a connection out of an instance.
type client struct {
	instance *Instance
	conn     net.Conn
	reader   *bufio.Reader
	// scheme, host and port are those of all requests, where it is connected to one host.
	scheme, host string
	port         uint16
}

func newClient(i *Instance, conn net.Conn) *client {
	return &client{instance: i, conn: conn, reader: bufio.NewReaderSize(conn, maxHead)}
}

// proxy serves requests to a proxy until the connection ends.
func (c *client) proxy() {
	for c.next() {
	}
}

// next serves one request, and reports whether there may be another one.
func (c *client) next() bool {
	_ = c.conn.SetDeadline(time.Now().Add(idleTimeout))
	if _, err := c.reader.Peek(1); err != nil {
		return false
	}
	_ = c.conn.SetDeadline(time.Now().Add(headTimeout))
	began := time.Now()
	request, hostHeader, err := readRequest(c.reader)
	if err != nil {
		if _, bad := errors.AsType[malformed](err); bad || errors.Is(err, errHead) {
			c.refuse(&exchange{began: began, host: c.host, port: c.port, scheme: c.scheme, status: http.StatusBadRequest}, err)
		}
		return false
	}
	_ = c.conn.SetDeadline(time.Time{})
	if request.Method == http.MethodConnect {
		return c.connect(request, hostHeader, began)
	}
	x, err := c.exchange(request, hostHeader, began)
	if err == nil {
		return c.forward(x)
	}
	x.status = http.StatusForbidden
	if _, bad := errors.AsType[malformed](err); bad {
		x.status = http.StatusBadRequest
	}
	return c.refuse(x, err) && request.Body == http.NoBody && !request.Close
}

// connect serves CONNECT, which nothing follows.
func (c *client) connect(request *http.Request, hostHeader string, began time.Time) bool {
	x := &exchange{began: began, host: request.Host, method: request.Method, scheme: "tcp", status: http.StatusForbidden}
	if c.host != "" || request.Body != http.NoBody {
		x.status = http.StatusBadRequest
		c.refuse(x, malformed("that is no proxy, or CONNECT has a body"))
		return false
	}
	host, port, err := split(request.Host)
	if said, _, ok := hostOf(hostHeader, "https"); err == nil && (!ok || said != host) {
		err = malformed("the address and the header Host of the request are two")
	}
	if err == nil {
		x.host, x.port = host, port
		_, err = c.instance.policy.Load().route(host, port)
	}
	if err != nil {
		return c.refuse(x, err) && !request.Close
	}
	if _, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return false
	}
	c.connected(host, port)
	return false
}

// connected serves a connection that its program takes for one to a host. It is allowed; what
// is spoken on it is not known yet.
func (c *client) connected(host string, port uint16) {
	x := &exchange{began: time.Now(), host: host, port: port, scheme: "tcp"}
	way, err := c.instance.policy.Load().route(host, port)
	if err != nil {
		c.tell(x, sdk.NetworkRefused, err)
		return
	}
	if way.raw {
		c.carry(x, way, nil)
		return
	}
	_ = c.conn.SetDeadline(time.Now().Add(helloTimeout))
	first, err := c.reader.Peek(1)
	if err != nil {
		c.tell(x, sdk.NetworkRefused, refusal("nothing was said on the connection that tells its protocol"))
		return
	}
	const handshake = 0x16
	if first[0] != handshake {
		_ = c.conn.SetDeadline(time.Time{})
		c.scheme, c.host, c.port = "http", host, port
		c.proxy()
		return
	}
	x.scheme = "tls"
	said, err := readHello(c.reader)
	_ = c.conn.SetDeadline(time.Time{})
	switch {
	case err != nil:
		err = refusal("the connection begins with no TLS that can be read")
	case said.hidden:
		err = refusal("the connection hides the host that it means (ECH)")
	case said.host == "" && net.ParseIP(host) == nil:
		err = refusal("the connection does not say which host it means (SNI)")
	case said.host != "" && !sameHost(said.host, host):
		err = refusef("the connection is to %s and means %.80q (SNI)", host, said.host)
	}
	switch {
	case err != nil:
		c.tell(x, sdk.NetworkRefused, err)
	case way.read:
		c.terminate(x, said.text)
	default:
		c.carry(x, way, said.text)
	}
}

func sameHost(text, host string) bool {
	name, ok := networkpolicy.Host(text)
	return ok && name == host
}

// carry passes a connection on as it is, for which a policy has decided the way. Another policy
// may be in force by now.
func (c *client) carry(x *exchange, decided route, said []byte) {
	ctx, cancel := context.WithCancel(c.instance.ctx)
	defer cancel()
	f := &flight{cut: func() {
		cancel()
		_ = c.conn.Close()
	}, allowed: func(p *policy) bool {
		way, err := p.route(x.host, x.port)
		return err == nil && !way.read && (way.raw || !decided.raw)
	}}
	if !c.instance.begin(f) {
		c.tell(x, sdk.NetworkRefused, errCut)
		return
	}
	defer c.instance.end(f)
	out, err := c.instance.dial(ctx, x.host, x.port)
	if err != nil {
		verdict := sdk.NetworkRefused
		if f.was.Load() || errors.Is(err, errCut) {
			verdict, err = sdk.NetworkCut, errCut
		}
		c.tell(x, verdict, err)
		return
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { _ = out.Close() })()
	x.began = time.Now()
	err = c.exchangeBytes(x, out, io.MultiReader(bytes.NewReader(said), c.reader), out)
	verdict := sdk.NetworkAllowed
	if f.was.Load() || errors.Is(err, errCut) {
		verdict, err = sdk.NetworkCut, errCut
	}
	c.tell(x, verdict, err)
}

// exchangeBytes copies both ways until one of them ends. It returns errCut if a quota has ended
// it, nil otherwise.
func (c *client) exchangeBytes(x *exchange, to io.WriteCloser, from, answers io.Reader) error {
	var ways sync.WaitGroup
	var cut atomic.Bool
	ways.Go(func() {
		_, err := io.Copy(counting{to, &x.sent}, from)
		cut.CompareAndSwap(false, errors.Is(err, errCut))
		_ = to.Close()
	})
	_, err := io.Copy(counting{deadlined{c.conn}, &x.received}, answers)
	cut.CompareAndSwap(false, errors.Is(err, errCut))
	_ = c.conn.Close()
	_ = to.Close()
	ways.Wait()
	if cut.Load() {
		return errCut
	}
	return nil
}

// counting counts what is written.
type counting struct {
	io.Writer
	n *atomic.Int64
}

// Write implements io.Writer.
func (w counting) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// deadlined gives up what nobody reads.
type deadlined struct{ net.Conn }

// Write implements io.Writer.
func (w deadlined) Write(p []byte) (int, error) {
	_ = w.SetWriteDeadline(time.Now().Add(writeTimeout))
	return w.Conn.Write(p)
}

// terminate ends TLS and serves the requests within.
func (c *client) terminate(x *exchange, said []byte) {
	certificate, err := c.instance.authority.forHost(x.host)
	if err != nil {
		c.tell(x, sdk.NetworkRefused, err)
		return
	}
	secure := tls.Server(&replayed{c.conn, io.MultiReader(bytes.NewReader(said), c.reader)}, &tls.Config{
		Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	ctx, cancel := context.WithTimeout(c.instance.ctx, helloTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		c.tell(x, sdk.NetworkRefused, refusef("the program does not take the certificate of this sandbox, or speaks no HTTP/1.1: %s", bounded(err.Error())))
		return
	}
	defer secure.Close()
	inner := newClient(c.instance, secure)
	inner.scheme, inner.host, inner.port = "https", x.host, x.port
	inner.proxy()
}

// tell reports what became of a connection.
func (c *client) tell(x *exchange, verdict sdk.NetworkVerdict, why error) {
	report := sdk.NetworkConnection{
		Host: x.host, Port: int(x.port), Protocol: x.scheme, Method: x.method, Verdict: verdict,
		Sent: x.sent.Load(), Received: x.received.Load(), Began: x.began,
	}
	if why != nil {
		report.Reason = why.Error()
	}
	c.instance.report(report)
}

// refuse answers a request that does not go out, and reports whether the connection lives.
func (c *client) refuse(x *exchange, why error) bool {
	if x.scheme == "" {
		x.scheme = "http"
	}
	c.tell(x, sdk.NetworkRefused, why)
	return c.respond(x, why)
}

// respond answers a request in the place of its host.
func (c *client) respond(x *exchange, why error) bool {
	text := "sandbox broker: " + why.Error() + "\n"
	_ = c.conn.SetDeadline(time.Now().Add(headTimeout))
	_, err := fmt.Fprintf(c.conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\n\r\n%s",
		x.status, http.StatusText(x.status), len(text), ifNot(x.method == http.MethodHead, text))
	return err == nil
}

func ifNot(without bool, text string) string {
	if without {
		return ""
	}
	return text
}

// hostOf is the host and port that a request names, of a scheme.
func hostOf(text, scheme string) (host string, port uint16, ok bool) {
	port = 80
	if scheme == "https" {
		port = 443
	}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		host, ok = networkpolicy.Host(text[1 : len(text)-1])
		return host, port, ok
	}
	if !strings.Contains(text, ":") {
		host, ok = networkpolicy.Host(text)
		return host, port, ok
	}
	host, port, err := split(text)
	return host, port, err == nil
}
