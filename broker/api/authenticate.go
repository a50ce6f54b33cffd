package api

import (
	"bytes"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const headerAPIKey = "X-API-Key"

// strangerBody is how much of a body is read from somebody without a valid
// token, in bytes: enough to answer a request that merely lacks its token
// without closing the connection.
const strangerBody = 16 << 10

// headerReceived looks at a request before its body is read. Bodies that stream
// stay on the connection, and those of strangers are limited: anybody could make
// the broker hold as many bodies of the full size as there are connections.
func (s *Server) headerReceived(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if ambiguousHead(header) { // screen refuses it
		header.SetContentLength(0) // nobody waits for a body whose end is not known
		header.Del(fiber.HeaderExpect)
		return fasthttp.RequestConfig{}
	}
	if _, program := s.previewLabel(header); program || s.bodyStreams(header) {
		s.streams.Hold(header)
		return fasthttp.RequestConfig{} // the handler sees it soon enough
	}
	who, err := s.authenticate(header)
	if err != nil && !s.isAdmin(header) {
		return fasthttp.RequestConfig{MaxRequestBodySize: min(strangerBody, s.maxBody())}
	}
	if !s.takeBody(header, who.Name) {
		return fasthttp.RequestConfig{MaxRequestBodySize: 1, ReadTimeout: tokenTimeout} // protocolError says why
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: s.maxBody(), ReadTimeout: tokenTimeout}
}

// takeBody reports whether there is memory for the body of a request. Administrators
// count as one tenant.
func (s *Server) takeBody(header *fasthttp.RequestHeader, owner string) bool {
	bounds := s.bounds.Load()
	length := int64(header.ContentLength())
	if length == chunkedBody {
		length = bounds.MaxBody // it may be so long
	}
	if length <= 1 || length > bounds.MaxBody || bounds.Bodies == 0 { // none, or too large anyhow
		return true
	}
	return s.bodies.take(header, owner, length, bounds.BodiesPerTenant, bounds.Bodies)
}

// chunkedBody is how fasthttp writes the length of a body in chunks.
const chunkedBody = -1

// errTooManyBodies refuses a body for which there is no memory.
var errTooManyBodies = sdk.Errorf(sdk.CodeQuotaExceeded, "The bodies of the requests that are under way are as large as they may be together. Wait for some of these to end.")

// authenticate finds the tenant by the request's token. It says the same for no
// token, for a wrong one and for several that differ.
func (s *Server) authenticate(header *fasthttp.RequestHeader) (tenant.Tenant, error) {
	who, ok := s.tenants.Authenticate(tokenOf(header))
	if !ok {
		return tenant.Tenant{}, sdk.Errorf(sdk.CodeNotAuthenticated, "A valid token is needed: Authorization: Bearer <token>, or X-API-Key: <token>.")
	}
	return who, nil
}

// tokenOf returns the request's one token. Where tokens differ there is none: a
// proxy in front may have looked at another one than we would.
func tokenOf(header *fasthttp.RequestHeader) string {
	var tokens []string
	for _, value := range header.PeekAll(headerAPIKey) {
		tokens = append(tokens, string(value))
	}
	for _, value := range header.PeekAll(fiber.HeaderAuthorization) {
		if scheme, token, ok := strings.Cut(string(value), " "); ok && strings.EqualFold(scheme, "Bearer") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	if bytes.EqualFold(header.Peek(fiber.HeaderUpgrade), []byte("websocket")) {
		tokens = append(tokens, offeredTokens(header)...)
	}
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

// offeredTokens are those among the subprotocols of a WebSocket handshake.
func offeredTokens(header *fasthttp.RequestHeader) []string {
	var tokens []string
	for _, value := range header.PeekAll(fiber.HeaderSecWebSocketProtocol) {
		for protocol := range strings.SplitSeq(string(value), ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(protocol), protocolBearer); ok {
				tokens = append(tokens, token)
			}
		}
	}
	return tokens
}
