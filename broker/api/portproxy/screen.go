package portproxy

import (
	"io"
	"net/http"
	"strings"
)

// Fields of an answer speak to whoever is on its way: proxies, which some of them
// steer to files and addresses of their own, and the browser, where some hold for all
// of an origin. New ones of both kinds come every year. So for a browser only those
// pass that are known to speak of the answer alone, or that are a program's own by
// their names; a client with a token is a program, which no field steers, and gets
// all but those that are known to steer.

// contentFields speak of the answer alone.
var contentFields = nameSet(
	"Accept-Patch", "Accept-Post", "Accept-Ranges", "Age", "Allow", "Cache-Control", "Connection", "Content-Digest",
	"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Location", "Content-Range",
	"Content-Security-Policy", "Content-Security-Policy-Report-Only", "Content-Type", "Cross-Origin-Embedder-Policy",
	"Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Date", "Deprecation", "Etag", "Expires", "Last-Modified",
	"Link", "Location", "Permissions-Policy", "Pragma", "Preference-Applied", "Refresh", "Repr-Digest", "Request-Id",
	"Retry-After", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "Server", "Server-Timing",
	"Set-Cookie", "Sourcemap", "Sunset", "Timing-Allow-Origin", "Upgrade", "Vary", "Warning", "Transfer-Encoding",
)

// programFields begin the names of fields that programs have made up for themselves.
// Standards have kept away from X- since RFC 6648; the others are of widespread
// libraries.
var programFields = []string{
	"X-", "Grpc-", "Hx-", "Mcp-", "Turbo-", "Ratelimit", "Jupyter-", "Streamlit-", "Docker-", "Odata-", "Openai-", "Api-",
}

// steeringFields begin the names of fields that steer proxies, caches and load
// balancers.
var steeringFields = []string{
	"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Litespeed-", "X-Reproxy-", "X-Send-File", "X-Envoy-", "X-Varnish", "X-Fastly-",
	"X-Akamai-", "X-Cdn-", "X-Edge-", "X-Haproxy-", "X-Nginx-", "X-Proxy-", "X-Real-", "X-Forwarded-", "X-Internal-Redirect",
	"X-Original-", "X-Rewrite-", "X-Http-Method", "X-Esi", "X-Purge", "X-Ban", "X-Vercel-", "X-Middleware-",
	"Surrogate-", "Cdn-", "Edge-", "Fastly-", "Cf-", "Cloudflare-", "Akamai-", "Netlify-", "Vercel-", "Proxy-", "Via", "Forwarded", "Keep-Alive",
}

// originFields begin the names of fields that hold for an origin, or that ask a
// browser for more than to show the answer.
var originFields = []string{
	"Accept-Ch", "Activate-", "Ad-Auction", "Alt-Svc", "Attribution-", "Authentication-", "Available-", "Clear-Site-Data", "Critical-",
	"Document-Policy", "Expect-", "Integrity-Policy", "Nel", "No-Vary-Search", "Observe-", "Origin-", "Public-Key-Pins",
	"Referrer-Policy", "Report-To", "Reporting-Endpoints", "Require-Document-Policy", "Sec-Session-", "Sec-", "Service-Worker-",
	"Set-Cookie2", "Set-Login", "Shared-Storage", "Speculation-Rules", "Strict-Transport-Security", "Supports-Loading-Mode",
	"Use-As-Dictionary", "Www-Authenticate", "X-Dns-Prefetch-Control", "X-Fledge", "X-Permitted-Cross-Domain", "X-Ua-Compatible",
	"Access-Control-",
}

func nameSet(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// screenResponse takes out of an answer what speaks to others than the client about
// this answer. switches is set for the answer to a handshake.
func (e *Exchange) screenResponse(h http.Header, switches bool) {
	for name := range h {
		if !e.passes(http.CanonicalHeaderKey(name), switches) {
			delete(h, name)
		}
	}
	if protocol := h.Get(subprotocols); isOwnProtocol(protocol) {
		h.Del(subprotocols)
	}
}

func (e *Exchange) passes(name string, switches bool) bool {
	switch {
	case strings.HasPrefix(name, "Sec-Websocket-"):
		return switches
	case hasAnyPrefix(name, steeringFields):
		return false
	case e.OwnHost:
		return true
	case hasAnyPrefix(name, originFields):
		return false
	default:
		return !e.Browser || contentFields[name] || hasAnyPrefix(name, programFields)
	}
}

// keepFromSharedCaches has an answer stored by its client alone: a cache in front of
// the broker would give it to those who have no token, and after a link has ended.
func keepFromSharedCaches(h http.Header) {
	directives := []string{"private"}
	for _, line := range h.Values("Cache-Control") {
		for directive := range strings.SplitSeq(line, ",") {
			directive = strings.TrimSpace(directive)
			name, _, _ := strings.Cut(strings.ToLower(directive), "=")
			switch name {
			case "", "public", "private", "s-maxage", "proxy-revalidate", "stale-while-revalidate", "stale-if-error":
			default:
				directives = append(directives, directive)
			}
		}
	}
	h.Set("Cache-Control", strings.Join(directives, ", "))
}

func hasAnyPrefix(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// untrailed is a body whose trailers nobody sees: they come when the headers are out
// and would be as good as these for many a client.
type untrailed struct {
	io.ReadCloser
	response *http.Response
}

func dropTrailers(resp *http.Response) {
	resp.Header.Del("Trailer")
	resp.Trailer = nil
	if resp.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection
		resp.Body = &untrailed{resp.Body, resp}
	}
}

// Read implements io.Reader. net/http sets the trailers when it reads the end.
func (b *untrailed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.response.Trailer = nil
	}
	return n, err
}
