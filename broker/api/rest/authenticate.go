package rest

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// HeaderAPIKey is where a token may be instead of Authorization.
const HeaderAPIKey = "X-API-Key"

// strangerBody is how much of a body is read from somebody without a valid
// token, in bytes: enough to answer a request that merely lacks its token
// without closing the connection.
const strangerBody = 16 << 10

// Header is what a request says before its body.
type Header struct {
	of  *fasthttp.RequestHeader
	api *API
}

// Values are those of all fields of a name.
func (h Header) Values(name string) []string {
	var values []string
	for _, value := range h.of.PeekAll(name) {
		values = append(values, string(value))
	}
	return values
}

// Target is the path below the API's prefix, and the query, as they were sent.
func (h Header) Target() string {
	target := string(h.of.RequestURI())
	if rest, ok := below(target, h.api.prefix); ok {
		return rest
	}
	return target
}

// Host that the request is for, in lower case and without a port.
func (h Header) Host() string { return hostname(string(h.of.Host())) }

// Method of the request.
func (h Header) Method() string { return string(h.of.Method()) }

// caller is who asks, as far as the token says.
type caller struct {
	api    *API
	tenant tenant.Tenant
	// known callers are tenants; admin ones have the token of an administrator.
	known, admin bool
	// refusal of who is neither, if it is not the usual one.
	refusal error
	// token is kept for who is a tenant, and may be an administrator too.
	token string
}

// callerOf looks at the request's token, unless headerReceived has done so.
func (a *API) callerOf(header *fasthttp.RequestHeader) caller {
	if who, ok := a.server.arrivals.caller(header); ok && who.api == a {
		return who
	}
	return a.authenticate(header)
}

// authenticate finds who asks by the token.
func (a *API) authenticate(header *fasthttp.RequestHeader) caller {
	if a.opts.Authenticate != nil {
		who := caller{api: a}
		// Whether the client has gone is not seen before its request is read.
		ctx, cancel := context.WithTimeout(a.server.base, a.server.requestTimeout())
		defer cancel()
		who.tenant, who.refusal = a.opts.Authenticate(ctx, Header{header, a})
		who.known = who.refusal == nil
		return who
	}
	who := caller{api: a, token: OnlyOne(a.opts.Tokens(Header{header, a}))}
	if who.tenant, who.known = a.server.opts.Tenants.Authenticate(who.token); !who.known {
		who.admin = a.server.isAdmin(who.token)
	}
	return who
}

// stranger is the refusal of who is not known.
func (c caller) stranger() error {
	if c.refusal != nil {
		return c.refusal
	}
	return errStranger
}

func (s *Server) isAdmin(token string) bool {
	return s.opts.Administrators != nil && s.opts.Administrators.Authenticate(token)
}

// errStranger is the same for no token, for a wrong one and for several that differ.
var errStranger = sdk.Errorf(sdk.CodeNotAuthenticated, "A valid token is needed: Authorization: Bearer <token>, or X-API-Key: <token>.")

// requireAdmin lets administrators pass.
func (s *Server) requireAdmin(who caller) error {
	switch {
	case s.opts.Administrators == nil || !s.opts.Administrators.Enabled():
		return sdk.Errorf(sdk.CodeNotAllowed, "This broker has no administrators. To have one, put the sum of a token that `sandbox-broker token` makes into the configuration: admin { token_sha256 = [...] }")
	case who.admin || who.known && s.isAdmin(who.token):
		return nil
	case !who.known:
		return errStranger
	default:
		return sdk.Errorf(sdk.CodeNotAllowed, "This token is a tenant's. What is below /api/admin takes an administrator's.")
	}
}

// OnlyOne returns the request's one token. Where tokens differ there is none: a
// proxy in front may have looked at another one than we would.
func OnlyOne(tokens []string) string {
	for _, token := range tokens {
		if token != tokens[0] {
			return ""
		}
	}
	if len(tokens) == 0 {
		return ""
	}
	return tokens[0]
}

// BearerTokens are those after Authorization: Bearer, in X-API-Key, and among the
// subprotocols of a WebSocket handshake.
func BearerTokens(header Header) []string {
	tokens := header.Values(HeaderAPIKey)
	for _, value := range header.Values(fiber.HeaderAuthorization) {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	if !bytes.EqualFold(header.of.Peek(fiber.HeaderUpgrade), []byte("websocket")) {
		return tokens
	}
	for _, value := range header.Values(fiber.HeaderSecWebSocketProtocol) {
		for protocol := range strings.SplitSeq(value, ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(protocol), protocolBearer); ok {
				tokens = append(tokens, token)
			}
		}
	}
	return tokens
}

// headerReceived looks at a request before its body is read. Bodies that stream
// stay on the connection, and those of strangers are limited: anybody could make
// the broker hold as many bodies of the full size as there are connections. door is that
// whose own listener the request came by; nil for the server's. passed says that a peer has
// passed the request on.
func (s *Server) headerReceived(header *fasthttp.RequestHeader, door *API, passed bool) fasthttp.RequestConfig {
	// A request before this one may have had the same place, and ended without a word: of
	// some bodies that never come fasthttp tells nobody.
	s.arrivals.release(header)
	if ambiguousHead(header) { // screen refuses it
		header.SetContentLength(0) // nobody waits for a body whose end is not known
		header.Del(fiber.HeaderExpect)
		return fasthttp.RequestConfig{}
	}
	if byHost := s.lead(header, door); byHost || s.bodyStreams(header) {
		s.streams.Hold(header)
		return fasthttp.RequestConfig{} // the handler sees it soon enough
	}
	who := s.apiOf(targetPath(header)).authenticate(header)
	if peer.Has(who.refusal) && s.opts.Peers != nil && !passed {
		// Its body goes to the peer as it comes. The refusal is asked for again.
		s.arrivals.take(header, who, 0, *s.bounds.Load())
		s.streams.Hold(header)
		return fasthttp.RequestConfig{}
	}
	room := s.arrivals.take(header, who, s.bodyLength(header), *s.bounds.Load())
	switch {
	case !who.known && !who.admin:
		return fasthttp.RequestConfig{MaxRequestBodySize: min(strangerBody, s.maxBody())}
	case !room:
		return fasthttp.RequestConfig{MaxRequestBodySize: 1, ReadTimeout: tokenTimeout} // protocolError says why
	default:
		return fasthttp.RequestConfig{MaxRequestBodySize: s.maxBody(), ReadTimeout: tokenTimeout}
	}
}

// bodyLength is how many bytes a body may take, 0 for one that does not count.
func (s *Server) bodyLength(header *fasthttp.RequestHeader) int64 {
	bounds := s.bounds.Load()
	length := int64(header.ContentLength())
	if length == chunkedBody {
		length = bounds.MaxBody // it may be so long
	}
	if length <= 1 || length > bounds.MaxBody || bounds.Bodies == 0 { // none, or too large anyhow
		return 0
	}
	return length
}

// chunkedBody is how fasthttp writes the length of a body in chunks.
const chunkedBody = -1

// targetPath is the path as it was sent.
func targetPath(header *fasthttp.RequestHeader) string {
	path, _, _ := strings.Cut(string(header.RequestURI()), "?")
	return path
}

// HostOf is the host that a request is for, as Header.Host has it.
func HostOf(r *http.Request) string { return hostname(r.Host) }

// hostname is a host in lower case, without its port, which may be empty, and the dot at its end.
func hostname(host string) string {
	host = strings.ToLower(host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(host, ".")
}

// hasEmptyLabel finds a host such as a..example or .example: a proxy in front may take it for another
// one than we do.
func hasEmptyLabel(host string) bool {
	name := hostname(host)
	return name != "" && slices.Contains(strings.Split(name, "."), "")
}
