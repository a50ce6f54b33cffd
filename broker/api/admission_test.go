package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
)

// guard has the fixture served behind a gate too, and sends its requests there.
func (f *fixture) guard(bounds admission.Bounds) *admission.Gate {
	f.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(f.t, err)
	gate := admission.NewGate(bounds, nil)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(gate.Listener(listener)) }()
	f.address = listener.Addr().String()
	f.do(http.MethodGet, "/healthz", "", "").wants(http.StatusOK)
	f.client.CloseIdleConnections()
	return gate
}

func waitFor(t *testing.T, gate *admission.Gate, known, strangers int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if c := gate.Counts(); c.Known != known || c.Strangers != strangers {
			return poll.Continue("%+v", c)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(5*time.Millisecond))
}

// A body may take its time: that the headers had a token is enough.
func TestWhoHasShownATokenIsNoStranger(t *testing.T) {
	const length = len(`{"code":"1","language":"python"}`)
	for name, test := range map[string]struct {
		head  string
		known bool
	}{
		"a tenant's token and no body yet": {fmt.Sprintf("POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-API-Key: acme-token\r\nContent-Length: %d\r\n\r\n", length), true},
		"a wrong token and no body yet":    {fmt.Sprintf("POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-API-Key: wrong\r\nContent-Length: %d\r\n\r\n", length), false},
		"half of the headers":              {"POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: acme-token\r\n", false},
		"nothing":                          {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			gate := f.guard(admission.Bounds{Connections: 100, Strangers: 3, StrangersPerAddress: 3, PerOwner: 3})
			waitFor(t, gate, 0, 0)
			conn, r := f.dial()
			_, err := io.WriteString(conn, test.head)
			assert.NilError(t, err)
			if test.known {
				waitFor(t, gate, 1, 0)
			} else {
				waitFor(t, gate, 0, 1)
			}
			for range 4 {
				f.dial()
			}
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if c := gate.Counts(); c.Strangers < 3 || c.Displaced < map[bool]uint64{true: 1, false: 2}[test.known] {
					return poll.Continue("%+v", c)
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute), poll.WithDelay(5*time.Millisecond))
			if !test.known {
				_, err := r.ReadByte()
				assert.Assert(t, err != nil, "its connection is closed without a word")
				return
			}
			_, err = io.WriteString(conn, `{"code":"1","language":"python"}`)
			assert.NilError(t, err)
			f.receive(r).wants(http.StatusOK)
		})
	}
}

func TestATenantHasSoManyConnections(t *testing.T) {
	f := start(t)
	gate := f.guard(admission.Bounds{Connections: 100, Strangers: 3, StrangersPerAddress: 3, PerOwner: 2})
	ask := func(token string) answer {
		conn, r := f.dial()
		_, err := fmt.Fprintf(conn, "GET /api/v1/instances HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n\r\n", token)
		assert.NilError(t, err)
		return f.receive(r)
	}
	for range 2 {
		ask("acme-token").wants(http.StatusOK)
	}
	ask("acme-token").problem(http.StatusTooManyRequests, "SB008")
	ask("umbrella-token").wants(http.StatusOK)
	assert.Equal(t, gate.Counts().Overdrawn, uint64(1))
}

func TestALinkIsAsGoodAsAToken(t *testing.T) {
	f, id := startPorts(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	link := f.makePreview(id, `{}`).Path
	gate := f.guard(admission.Bounds{Connections: 100, Strangers: 3, StrangersPerAddress: 3, PerOwner: 3})
	waitFor(t, gate, 0, 0)
	conn, _ := f.dial()
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", link)
	assert.NilError(t, err)
	waitFor(t, gate, 1, 0)
	assert.NilError(t, conn.Close())
	waitFor(t, gate, 0, 0)
}
