// Package portproxy passes one HTTP exchange on to a program in a sandbox, over a
// connection that somebody else has made, and sees to it that neither learns or
// claims what is not its own: the program sees no token of the broker's, and what
// it answers cannot speak for the broker's origin.
//
// The work is that of httputil.ReverseProxy. The package knows nothing of tenants,
// instances and links.
package portproxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
)

// maxHeaders bounds the headers of a program's answer, in bytes.
const maxHeaders = 256 << 10

// ErrAnswer says that what the program answered is not HTTP, or not all of it.
var ErrAnswer = errors.New("the program did not answer in HTTP, or not to the end")

// Exchange is one request on its way to a program.
type Exchange struct {
	// Conn is the connection to the program. The caller closes it.
	Conn net.Conn
	// Port is where the program listens.
	Port uint16
	// Prefix is the path of the broker's that stands for the program's root, as
	// the client wrote it and without a slash at the end.
	Prefix string
	// Path is the path that the program is asked for, escaped.
	Path string
	// Scheme and Host are how the client reaches the broker.
	Scheme, Host string
	// RequestID stands in the answer in place of whatever the program says.
	RequestID string
	// Credentials names header fields of the request, beside the broker's own, that
	// hold credentials for the API which the client uses: the program sees none.
	Credentials []string
	// Browser is set for a page that a browser shows on the broker's origin
	// without a token: see Headers.
	Browser bool
	// OwnHost is set for a page that a browser shows at a host of its own: what holds
	// for an origin holds for this program alone. Prefix is empty then.
	OwnHost bool
}

// Serve answers a request. Its error is that of r's context, ErrAnswer, or says
// that the request cannot be passed on. The answer may have begun.
func (e *Exchange) Serve(w http.ResponseWriter, r *http.Request) (err error) {
	path, err := url.PathUnescape(e.Path)
	if err != nil {
		return err
	}
	if e.Browser && isPreflight(r) {
		e.answerPreflight(w)
		return nil
	}
	var failure error
	transport := &http.Transport{
		DialContext:            once(e.Conn),
		DisableKeepAlives:      true,
		DisableCompression:     true, // what is compressed stays so
		MaxResponseHeaderBytes: maxHeaders,
	}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // its lines hold what the program sent
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "http", Host: e.address(), Path: path, RawPath: escaped(e.Path), RawQuery: p.In.URL.RawQuery}
			p.Out.Host = e.address()
			e.rewriteRequest(p)
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
				return ErrAnswer // a number that no answer has, such as 099
			}
			dropTrailers(resp)
			e.rewriteResponse(resp)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failure = err },
	}
	w.Header().Del("X-Request-Id") // the answer brings it
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler: // the way in which ReverseProxy says that a body ended early
			err = because(r.Context())
		default:
			panic(v)
		}
	}()
	// Else net/http closes the body of the request when the answer begins, and the transport,
	// which may be about to find the end of that body, takes it for broken: golang.org/issue/40747.
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy.ServeHTTP(finalWriter{w}, r)
	if failure != nil {
		return because(r.Context())
	}
	return nil
}

// because says why an exchange failed: because it was to end, or by the program.
func because(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return ErrAnswer
}

// address is what the program is told that it was asked as.
func (e *Exchange) address() string { return net.JoinHostPort("localhost", strconv.Itoa(int(e.Port))) }

// once dials a connection that is there already. It hides that the connection may
// be closed by halves: a client that leaves looks like one that has said all, and
// a program that does not care would keep the connection for ever.
func once(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	used := make(chan struct{}, 1)
	return func(context.Context, string, string) (net.Conn, error) {
		select {
		case used <- struct{}{}:
			return struct{ net.Conn }{conn}, nil
		default:
			return nil, net.ErrClosed
		}
	}
}

// finalWriter keeps to itself what the program says before its answer: headers
// that nobody has looked at.
type finalWriter struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController, by which ReverseProxy flushes and
// hijacks.
func (w finalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w finalWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.ResponseWriter.WriteHeader(status)
	}
}

// escaped writes what may not stand in a path in its escaped form, so that net/url
// leaves the rest as the client wrote it: an escaped slash is not a slash.
func escaped(path string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(path))
	for i := range len(path) {
		if c := path[i]; isPathByte(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

func isPathByte(c byte) bool {
	switch c {
	case '-', '_', '.', '~', '!', '$', '&', '\'', '(', ')', '*', '+', ',', ';', '=', ':', '@', '/', '%', '[', ']':
		return true
	default:
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
}
