package attackers

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// handshake is what asks for a WebSocket.
const handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// ofPrograms are those of programs behind ports and of pages behind links.
func ofPrograms() []class {
	const port = "{program}/ports/8000"
	untold := func(t *testing.T, _ *scene, answer harness.Answer) {
		assert.Check(t, is.Contains(string(answer.Body), "GET /see"), "the program was asked")
		assert.Check(t, !is.Contains(string(answer.Body), harness.Token)().Success(), "%s", answer.Body)
		assert.Check(t, !is.Contains(string(answer.Body), harness.OtherToken)().Success(), "%s", answer.Body)
	}
	offer := func(name, base, lines string) attack {
		return attack{name: name, request: "GET " + base + "/see", lines: handshake + lines, status: []int{200}, holds: untold}
	}
	steers := func(name, base, field string) attack {
		return attack{
			name: name, request: saying(base, "HTTP/1.1 200 OK\r\nX-Own: 1\r\n"+field+": /internal\r\nContent-Length: 2\r\n\r\nok"), status: []int{200},
			holds: func(t *testing.T, _ *scene, answer harness.Answer) {
				assert.Check(t, is.Equal(answer.Header.Get("X-Own"), "1"), "what is the program's own passes")
				assert.Check(t, is.Len(answer.Header.Values(field), 0))
			},
		}
	}
	status := func(name, line string) attack {
		return attack{name: name, request: saying(port, "HTTP/1.1 "+line+"\r\nContent-Length: 2\r\n\r\nok"), status: []int{http.StatusBadGateway}}
	}
	atHost := func(name, host, path string, wants int, holds func(t *testing.T, s *scene, a harness.Answer)) attack {
		return attack{name: name, request: "GET " + path, lines: "Host: " + host + "\r\n", status: []int{wants}, holds: holds}
	}
	return []class{
		{"tokens in subprotocols", []attack{
			offer("beside the token", port, "Sec-WebSocket-Protocol: bearer."+harness.Token+", chat\r\n"),
			offer("in two lines", port, "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: x, bearer."+harness.Token+"\r\n"),
			offer("in other letters", port, "Sec-WebSocket-Protocol: BEARER."+harness.OtherToken+"\r\n"),
			offer("by a link", "{link}", "Sec-WebSocket-Protocol: bearer."+harness.Token+"\r\n"),
			{name: "in place of the token", does: func(t *testing.T, s *scene) {
				answer := s.send(t, s.fill("GET "+port+"/see HTTP/1.1\r\nHost: x\r\n"+handshake+"Sec-WebSocket-Protocol: bearer."+harness.Token+"\r\n\r\n"), false)
				assert.Equal(t, answer.Status, http.StatusOK)
				untold(t, s, answer)
			}},
		}},
		{"headers that steer proxies and browsers", []attack{
			steers("nginx", port, "X-Accel-Redirect"),
			steers("others", port, "X-Sendfile"),
			steers("caches", "{link}", "Surrogate-Control"),
			steers("logins of an origin", "{link}", "Set-Login"),
			steers("sessions of an origin", "{link}", "Sec-Session-Registration"),
			{
				name: "in trailers", request: saying(port, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Set-Cookie\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: a=b\r\nX-Accel-Redirect: /x\r\n\r\n"), status: []int{200},
				holds: func(t *testing.T, _ *scene, answer harness.Answer) {
					assert.Check(t, is.Equal(string(answer.Body), "ok"))
					for name := range answer.Header {
						assert.Check(t, !is.Contains(name, "Trailer")().Success(), "%v", answer.Header)
					}
				},
			},
		}},
		{"statuses out of range", []attack{
			status("below all", "099 Low"),
			status("of zeros", "000 Zero"),
			status("of four digits", "1000 High"),
			status("of letters", "abc No"),
		}},
		{"previews by host", []attack{
			atHost("a route of the API", "{host}", "/api/v1/instances", 200, func(t *testing.T, _ *scene, answer harness.Answer) {
				assert.Check(t, is.Contains(string(answer.Body), "GET /api/v1/instances"), "it is the program's")
				assert.Check(t, !is.Contains(string(answer.Body), harness.Token)().Success(), "%s", answer.Body)
			}),
			atHost("a label that is forged", "8000-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.preview.test", "/", 403, nil),
			atHost("a host below that of a link", "x.{host}", "/", 403, nil),
			atHost("the label at another domain", "{host}.evil.test", "/api/v1/instances", 200, func(t *testing.T, _ *scene, answer harness.Answer) {
				assert.Check(t, is.Contains(string(answer.Body), `"instances":[`), "it is the broker's")
			}),
			{
				name: "a cookie for the domain", request: saying("", "HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Domain=preview.test\r\nContent-Length: 0\r\n\r\n"), lines: "Host: {host}\r\n", status: []int{200},
				holds: func(t *testing.T, _ *scene, answer harness.Answer) {
					assert.Check(t, is.Contains(answer.Header.Get("Set-Cookie"), "a=b"))
					assert.Check(t, !is.Contains(answer.Header.Get("Set-Cookie"), "omain")().Success())
				},
			},
		}},
	}
}
