package e2b_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bodies that a route reads whole count among those in memory, on whichever route they come.
func TestBodiesThatDoNotComeAreBounded(t *testing.T) {
	const largest = 8 << 20
	f := start(t, func(o *api.Options, _ *box) { o.Bounds.Bodies, o.Bounds.BodiesPerTenant = 3*largest, 2*largest })
	for _, route := range []struct{ path, contentType, small string }{
		{"/process.Process/List", "application/json", "{}"},
		{"/filesystem.Filesystem/WatchDir", "application/connect+json", envelope(0, `{"path":"/missing"}`)},
		{"/execute", "application/json", `{"code":"1"}`},
	} {
		t.Run(route.path, func(t *testing.T) {
			ask := func() int {
				headers := []string{"Content-Type: " + route.contentType}
				if route.path == "/execute" {
					headers = append(headers, fmt.Sprintf("E2b-Sandbox-Port: %d", 49999))
				}
				return f.ask(http.MethodPost, route.path, route.small, headers...).StatusCode
			}
			until := func(refused bool, before func()) {
				t.Helper()
				poll.WaitOn(t, func(poll.LogT) poll.Result {
					before()
					if status := ask(); (status == http.StatusTooManyRequests) != refused {
						return poll.Continue("%d", status)
					}
					return poll.Success()
				}, poll.WithTimeout(2*time.Minute))
			}
			until(false, func() {})
			var held []net.Conn
			// One that comes beside a request of this test may be refused itself.
			until(true, func() {
				conn, err := net.Dial("tcp", f.address)
				assert.NilError(t, err)
				t.Cleanup(func() { conn.Close() })
				_, err = fmt.Fprintf(conn, "POST /e2b/process.Process/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\nContent-Length: %d\r\n\r\n{", strings.Join(f.data(), "\r\n"), largest)
				assert.NilError(t, err)
				held = append(held, conn)
			})
			for _, conn := range held {
				assert.NilError(t, conn.Close())
			}
			until(false, func() {})
		})
	}
	f.ask(http.MethodPost, "/process.Process/List", `{"x":"`+strings.Repeat("x", largest)+`"}`).refuses(http.StatusRequestEntityTooLarge, sdk.CodeInvalidRequest)
	for range 5 { // nothing is left of those that have come
		f.ask(http.MethodPost, "/process.Process/List", strings.Repeat(" ", largest-2)+"{}").wants(http.StatusOK)
	}
}
