package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
)

// Who keeps the ends of bodies back gets no memory for more of them, and takes none
// from others.
func TestBodiesThatDoNotComeAreBounded(t *testing.T) {
	const body = `{"language":"python","code":"1"}`
	f := start(t, func(o *api.Options, _ *fixture) {
		o.Bounds.Bodies, o.Bounds.BodiesPerTenant = 5*maxBody, 2*maxBody
	})
	begin := func(token, framing string) io.Closer {
		conn, r := f.dial()
		_, err := fmt.Fprintf(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-API-Key: %s\r\nExpect: 100-continue\r\n%s\r\n\r\n", token, framing)
		assert.NilError(t, err)
		assert.Equal(t, f.receive(r).StatusCode, http.StatusContinue) // the headers are read, and nothing of the body
		return conn
	}
	execute := func(token string) int {
		return f.do(http.MethodPost, "/api/v1/execute", body, "Authorization: Bearer "+token).StatusCode
	}
	until := func(token string, status int) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if got := execute(token); got != status {
				return poll.Continue("%d", got)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	first := begin("acme-token", fmt.Sprintf("Content-Length: %d", maxBody))
	second := begin("acme-token", "Transfer-Encoding: chunked")
	until("acme-token", http.StatusTooManyRequests)
	refused := f.do(http.MethodPost, "/api/v1/execute", body)
	refused.problem(http.StatusTooManyRequests, "SB008")
	f.do(http.MethodGet, "/api/v1/instances", "").wants(http.StatusOK)
	assert.Equal(t, execute("umbrella-token"), http.StatusOK, "another tenant has its own")

	begin("umbrella-token", fmt.Sprintf("Content-Length: %d", maxBody))
	begin("umbrella-token", fmt.Sprintf("Content-Length: %d", maxBody))
	begin("limited-token", fmt.Sprintf("Content-Length: %d", maxBody))
	until("limited-token", http.StatusTooManyRequests) // there is no more for anybody

	assert.NilError(t, first.Close())
	assert.NilError(t, second.Close())
	until("acme-token", http.StatusOK)
	large := `{"language":"python","code":"` + strings.Repeat("#", maxBody-100) + `"}`
	for range 10 { // nothing is left of those that have come
		f.do(http.MethodPost, "/api/v1/execute", large).wants(http.StatusOK)
	}
}
