package rest_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

type whose struct {
	Tenant string `json:"tenant"`
}

// fasthttp has one place for the headers of several connections, one after the other. A
// request whose body never came must leave nothing there for the next one: that may be
// somebody else's, and its token is not looked at before its body streams.
func TestNobodyIsTakenForWhoLeftBefore(t *testing.T) {
	credentials := []tenant.Credentials{}
	for _, name := range []string{"acme", "other"} {
		credentials = append(credentials, tenant.Credentials{Tenant: tenant.Tenant{Name: name}, TokenSHA256: [][32]byte{sha256.Sum256([]byte(name + "-token"))}})
	}
	s := rest.NewServer(rest.Options{
		Tenants: tenant.NewDirectory(credentials), Logger: hclog.NewNullLogger(),
		Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	api := s.NewAPI(rest.APIOptions{Name: "whose"})
	rest.Register(api, rest.Operation{Method: http.MethodPost, Path: "/take"}, func(_ context.Context, c rest.Call[rest.Raw]) (int, whose, error) {
		return http.StatusOK, whose{c.Tenant.Name}, nil
	})
	rest.Receive(api, rest.Operation{Method: http.MethodPut, Path: "/stream"}, func(r *http.Request, c rest.Call[rest.None]) (whose, error) {
		_, err := io.Copy(io.Discard, r.Body)
		return whose{c.Tenant.Name}, err
	})
	api.Mount("/whose")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		assert.Check(t, s.Shutdown(context.Background()))
		assert.Check(t, <-served)
	})

	ask := func(head, body string) string {
		conn, err := net.Dial("tcp", listener.Addr().String())
		assert.NilError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n%s", head, body)
		assert.NilError(t, err)
		assert.NilError(t, conn.(*net.TCPConn).CloseWrite())
		answer, _ := io.ReadAll(conn) // it may be none
		return string(answer)
	}
	bodies := []string{"Content-Length: 10\r\n\r\n", "Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}
	for round := range 200 {
		left := ask("POST /whose/take", "Authorization: Bearer acme-token\r\n"+bodies[round%len(bodies)])
		assert.Assert(t, !strings.Contains(left, "200 OK"), left)
		answer := ask("PUT /whose/stream", "Authorization: Bearer other-token\r\nContent-Length: 1\r\n\r\nx")
		assert.Assert(t, strings.Contains(answer, `"tenant":"other"`), answer)
		answer = ask("PUT /whose/stream", "Content-Length: 1\r\n\r\nx")
		assert.Assert(t, strings.Contains(answer, "401"), answer)
	}
}
