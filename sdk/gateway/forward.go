package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// exchange is a request and what became of it, or a connection that nobody reads.
type exchange struct {
	began          time.Time
	scheme, host   string
	port           uint16
	method         string
	status         int // of a refusal
	sent, received atomic.Int64

	in        *http.Request
	out       *http.Request
	body      *body
	webSocket bool
	secrets   []sdk.NetworkSecret
}

// Headers that belong to one connection, and those by which some servers take a request for
// another one than it says.
var (
	ofConnection = []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Expect", "Http2-Settings",
	}
	overriding = []string{
		"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Method", "X-Forwarded-Method",
		"X-Original-Url", "X-Original-Uri", "X-Original-Path", "X-Rewrite-Url", "X-Rewrite-Uri", "X-Forwarded-Uri", "X-Forwarded-Url", "X-Forwarded-Path",
		"X-Forwarded-Host", "X-Host", "Forwarded",
	}
)

// overrides reports whether a request has one of the headers by which it could mean another one.
// Many servers read an underscore in the name of a header as a hyphen.
func overrides(header http.Header) bool {
	for name := range header {
		if slices.Contains(overriding, http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
			return true
		}
	}
	return false
}

// exchange finds out what a request wants, and makes of it the one that goes out. What it
// returns has a host and a method also where it is refused.
func (c *client) exchange(in *http.Request, hostHeader string, began time.Time) (*exchange, error) {
	x := &exchange{began: began, scheme: c.scheme, host: c.host, port: c.port, method: in.Method, in: in}
	if err := c.address(x, hostHeader); err != nil {
		return x, err
	}
	p := c.instance.policy.Load()
	upgrade, err := upgrades(in)
	x.webSocket = upgrade
	if err != nil {
		return x, err
	}
	path := in.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	switch {
	case in.Method == http.MethodTrace || in.Method == "TRACK":
		return x, refusal("TRACE would show what requests carry on the way out")
	case p.limited(x.host, x.port) && !plainPath(path):
		return x, refusal("the path is written so that it could be understood in two ways")
	case p.limited(x.host, x.port) && overrides(in.Header):
		return x, refusal("the request has a header by which it could mean another method or path")
	}
	if err := p.request(x.host, x.port, in.Method, path, upgrade); err != nil {
		return x, err
	}
	x.secrets = p.secrets(x.host)
	header := outgoing(in.Header)
	if upgrade {
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
		x.scheme = "websocket"
	}
	if len(x.secrets) > 0 {
		// Answers must be readable, and whole, to be cleared of secrets.
		header.Set("Accept-Encoding", "identity")
		for _, name := range []string{"Range", "If-Range", "Sec-Websocket-Extensions"} {
			header.Del(name)
		}
	}
	scheme := cmp.Or(c.scheme, "http")
	if err := x.fill(header, scheme == "https"); err != nil {
		return x, err
	}
	if header.Get("User-Agent") == "" {
		header["User-Agent"] = nil // the transport would add its own
	}
	x.body = &body{from: in.Body, sent: &x.sent}
	x.out = &http.Request{
		Method: in.Method, Host: nameOf(x.host, x.port, scheme), Header: header, ContentLength: in.ContentLength, Body: x.body,
		URL:   &url.URL{Scheme: scheme, Host: addressOf(x.host, x.port), Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery, ForceQuery: in.URL.ForceQuery},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if in.Body == http.NoBody || in.ContentLength == 0 {
		x.out.Body, x.out.ContentLength = http.NoBody, 0
		x.body.ended.Store(true)
	}
	return x, nil
}

// nameOf is a host as requests name it.
func nameOf(host string, port uint16, scheme string) string {
	address := addressOf(host, port)
	if scheme == "http" && port == 80 || scheme == "https" && port == 443 {
		return strings.TrimSuffix(address, fmt.Sprintf(":%d", port))
	}
	return address
}

func addressOf(host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// address finds out where a request wants to go.
func (c *client) address(x *exchange, hostHeader string) error {
	u := x.in.URL
	if u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return malformed("the address of the request has what does not belong there")
	}
	host, port, ok := hostOf(hostHeader, cmp.Or(c.scheme, "http"))
	if !ok {
		return malformed("the header Host of the request is none")
	}
	if c.host != "" {
		if u.Scheme != "" || u.Host != "" {
			return malformed("the request is for a proxy, and its connection is to a host")
		}
		if host != c.host || port != c.port {
			return refusef("the connection is to %s and its request for %.80q", c.host, hostHeader)
		}
		return nil
	}
	if u.Scheme != "http" || u.Host == "" {
		return malformed("this is a proxy: ask it for http://host/path, or to CONNECT")
	}
	x.scheme = "http"
	x.host, x.port, ok = hostOf(u.Host, "http")
	if !ok {
		return refusef("%.80q is no host", u.Host)
	}
	if host != x.host || port != x.port {
		return malformed("the address and the header Host of the request are two")
	}
	return nil
}

// upgrades reports whether a request asks for a WebSocket. Nothing else can be asked for.
func upgrades(in *http.Request) (bool, error) {
	wanted := in.Header.Values("Upgrade")
	if len(wanted) == 0 {
		return false, nil
	}
	if len(wanted) == 1 && strings.EqualFold(wanted[0], "h2c") {
		return false, nil // an offer, which is not passed on
	}
	if len(wanted) != 1 || !strings.EqualFold(wanted[0], "websocket") || in.Method != http.MethodGet || in.ContentLength != 0 {
		return false, malformed("the request asks for another protocol than WebSocket")
	}
	return true, nil
}

// outgoing are the headers that go on.
func outgoing(in http.Header) http.Header {
	out := in.Clone()
	for _, list := range in.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.Trim(name, " \t"); !strings.EqualFold(name, "host") {
				out.Del(name)
			}
		}
	}
	for _, name := range ofConnection {
		out.Del(name)
	}
	return out
}

// forward makes a request that is allowed, and reports whether the connection lives.
func (c *client) forward(x *exchange) bool {
	ctx, cancel := context.WithCancel(c.instance.ctx)
	defer cancel()
	path := x.in.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	f := &flight{cut: func() {
		cancel()
		_ = c.conn.Close()
	}, allowed: func(p *policy) bool {
		return p.request(x.host, x.port, x.method, path, x.webSocket) == nil && (!p.limited(x.host, x.port) || plainPath(path)) &&
			slices.EqualFunc(p.secrets(x.host), x.secrets, sameSecret)
	}}
	if !c.instance.begin(f) {
		x.status = http.StatusForbidden
		c.refuse(x, errCut)
		return false
	}
	defer c.instance.end(f)
	if strings.EqualFold(x.in.Header.Get("Expect"), "100-continue") && !x.body.ended.Load() {
		if _, err := io.WriteString(c.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	// Who goes away wants no answer; a connection whose request has a body is being read.
	answer, err := c.instance.transport.RoundTrip(x.out.WithContext(ctx))
	if err != nil {
		if f.was.Load() || errors.Is(err, errCut) {
			c.tell(x, sdk.NetworkCut, errCut)
			return false
		}
		x.status = http.StatusBadGateway
		if refused, ok := errors.AsType[refusal](err); ok {
			x.status = http.StatusForbidden
			c.refuse(x, refused)
			return false
		}
		if missed, ok := errors.AsType[unreachable](err); ok {
			c.refuse(x, missed)
			return false
		}
		why := refusef("%s port %d gives no answer that can be passed on", x.host, x.port)
		c.tell(x, sdk.NetworkAllowed, why)
		c.respond(x, why)
		return false
	}
	defer answer.Body.Close()
	lives, err := c.answer(ctx, x, answer)
	switch {
	case f.was.Load() || errors.Is(err, errCut):
		c.tell(x, sdk.NetworkCut, errCut)
		return false
	default:
		c.tell(x, sdk.NetworkAllowed, nil)
	}
	return err == nil && lives && x.body.ended.Load() && !x.in.Close
}

func sameSecret(a, b sdk.NetworkSecret) bool {
	return a.Name == b.Name && a.Header == b.Header && a.Value == b.Value && slices.Equal(a.Hosts, b.Hosts)
}

// body is what a request sends. It is not read any more once it has ended.
type body struct {
	from  io.Reader
	sent  *atomic.Int64
	ended atomic.Bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.ended.Load() {
		return 0, io.EOF
	}
	n, err := b.from.Read(p)
	b.sent.Add(int64(n))
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// Close implements io.Closer. What was not read stays unread: the connection ends then.
func (b *body) Close() error { return nil }

// answer passes an answer on, and reports whether another one can follow it.
func (c *client) answer(ctx context.Context, x *exchange, answer *http.Response) (lives bool, err error) {
	if len(x.secrets) > 0 && answer.Header.Get("Content-Encoding") != "" && !strings.EqualFold(answer.Header.Get("Content-Encoding"), "identity") {
		x.status = http.StatusBadGateway
		_, err := fmt.Fprintf(c.conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false, err
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return false, c.switched(ctx, x, answer)
	}
	header := outgoing(answer.Header)
	x.maskHeader(header)
	status := answer.StatusCode
	empty := x.method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified || status < 200
	lives = x.in.ProtoAtLeast(1, 1)
	chunked := false
	switch {
	case empty:
		if length := answer.Header.Get("Content-Length"); x.method == http.MethodHead && length != "" {
			header.Set("Content-Length", length)
		}
	case answer.ContentLength >= 0:
		header.Set("Content-Length", fmt.Sprint(answer.ContentLength))
	case lives:
		header.Set("Transfer-Encoding", "chunked")
		chunked = true
	}
	if lives = lives && x.body.ended.Load() && !x.in.Close; !lives {
		header.Set("Connection", "close")
	}
	to := deadlined{c.conn}
	var head strings.Builder
	fmt.Fprintf(&head, "HTTP/1.1 %03d %s\r\n", status, http.StatusText(status))
	_ = header.Write(&head)
	head.WriteString("\r\n")
	if _, err := io.WriteString(to, head.String()); err != nil || empty {
		return lives, err
	}
	return lives, x.copyBody(to, x.masked(answer.Body), chunked)
}

// copyBody passes on what comes as it comes.
func (x *exchange) copyBody(to io.Writer, from io.Reader, chunked bool) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			x.received.Add(int64(n))
			data := buf[:n]
			if chunked {
				data = fmt.Appendf(nil, "%x\r\n%s\r\n", n, data)
			}
			if _, err := to.Write(data); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && chunked:
			_, err = io.WriteString(to, "0\r\n\r\n")
			return err
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// switched carries a WebSocket. The transport, which has let go of its connection, does not close
// it when the context ends.
func (c *client) switched(ctx context.Context, x *exchange, answer *http.Response) error {
	both, ok := answer.Body.(io.ReadWriteCloser)
	if !ok {
		return errors.New("another protocol than was asked for")
	}
	defer both.Close()
	defer context.AfterFunc(ctx, func() { _ = both.Close() })()
	if !x.webSocket || !strings.EqualFold(answer.Header.Get("Upgrade"), "websocket") {
		return errors.New("another protocol than was asked for")
	}
	header := outgoing(answer.Header)
	x.maskHeader(header)
	header.Set("Connection", "Upgrade")
	header.Set("Upgrade", "websocket")
	var head strings.Builder
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = header.Write(&head)
	head.WriteString("\r\n")
	if _, err := io.WriteString(deadlined{c.conn}, head.String()); err != nil {
		return err
	}
	return c.exchangeBytes(x, both, c.reader, x.masked(both))
}
