package attackers

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// ofStrangers are those of anybody who reaches the address, and of who has a token of
// somebody else's.
func ofStrangers() []class {
	silent := func(begin string) func(t *testing.T, s *scene) {
		return func(t *testing.T, s *scene) {
			for range 300 { // 200 are kept in all
				conn, err := net.Dial("tcp", strings.TrimPrefix(s.b.URL, "http://"))
				assert.NilError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = fmt.Fprint(conn, begin) // it may have been closed for a later one
			}
			s.serves(t)
			assert.Equal(t, s.send(t, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", false).Status, http.StatusOK)
		}
	}
	const alive = "HTTP/1.1\r\nHost: x\r\n"
	no := []int{http.StatusUnauthorized}
	return []class{
		{"silent connections", []attack{
			{name: "without a byte", does: silent("")},
			{name: "amid the first line", does: silent("GET /heal")},
			{name: "amid the headers", does: silent("GET /healthz " + alive + "X-A: b\r\n")},
			{name: "amid the body", does: silent("POST /api/v1/execute " + alive + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")},
		}},
		{"tokens in wrong places", []attack{
			{name: "in the query", raw: "GET /api/v1/instances?token=" + harness.Token + " " + alive + "\r\n", status: no},
			{name: "in a cookie", raw: "GET /api/v1/instances " + alive + "Cookie: token=" + harness.Token + "; Authorization=Bearer " + harness.Token + "\r\n\r\n", status: no},
			{name: "two that differ", raw: "GET /api/v1/instances " + alive + "X-API-Key: " + harness.OtherToken + "\r\nX-API-Key: " + harness.Token + "\r\n\r\n", status: no},
			{name: "one beside another's", raw: "GET /api/v1/instances " + alive + "Authorization: Bearer " + harness.OtherToken + "\r\nX-API-Key: " + harness.Token + "\r\n\r\n", status: no},
			{name: "as Basic", raw: "GET /api/v1/instances " + alive + "Authorization: Basic " + harness.Token + "\r\n\r\n", status: no},
			{name: "as a subprotocol of what is no handshake", raw: "GET /api/v1/instances " + alive + "Sec-WebSocket-Protocol: bearer." + harness.Token + "\r\n\r\n", status: no},
			{name: "a tenant's at the administrators' door", request: "GET " + adminAPI + "/config", status: []int{http.StatusForbidden}},
		}},
		{"handshakes of other pages", []attack{
			{name: "from another site", request: "GET {program}/commands/c-2/terminal", lines: handshake + "Origin: https://evil.test\r\n", status: []int{http.StatusForbidden}},
			{name: "from a page without an origin", request: "GET {program}/commands/c-2/terminal", lines: handshake + "Origin: null\r\n", status: []int{http.StatusForbidden}},
			{name: "from a name that begins alike", request: "GET {program}/commands/c-2/terminal", lines: handshake + "Origin: http://x.evil.test\r\n", status: []int{http.StatusForbidden}},
			{name: "with a cookie for a token", raw: "GET {program}/commands/c-2/terminal " + alive + handshake + "Origin: http://x\r\nCookie: token=" + harness.Token + "\r\n\r\n", status: no},
		}},
		{"what is another's", []attack{
			{name: "an execution", request: "POST {victim}/execute", lines: "X-API-Key: " + harness.OtherToken + "\r\n", body: `{"language":"python","code":"1"}`, status: []int{http.StatusNotFound}},
			{name: "its end", request: "DELETE {victim}", lines: "X-API-Key: " + harness.OtherToken + "\r\n", status: []int{http.StatusNotFound}},
			{name: "its port", request: "GET {program}/ports/8000/", lines: "X-API-Key: " + harness.OtherToken + "\r\n", status: []int{http.StatusNotFound}},
			{name: "a link to its port", request: "POST {program}/ports/8000/preview", lines: "X-API-Key: " + harness.OtherToken + "\r\n", body: "{}", status: []int{http.StatusNotFound}},
		}},
	}
}
