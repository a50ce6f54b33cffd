package bridge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/bridge"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/remotetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// service is that of one sandbox.
type service struct{ *remotetest.Sandbox }

func (s service) Box(context.Context, string) (place.Box, error) {
	return place.Box{Runner: s.Sandbox}, nil
}
func (service) Worth(error) (time.Duration, bool)                    { return 0, false }
func (service) Refused(error) bool                                   { return false }
func (service) Explain(_ context.Context, err error, _ string) error { return err }

// bridged is a sandbox with its bridge.
type bridged struct {
	*bridge.Bridge
	sandbox *remotetest.Sandbox
	at      []uint16 // where the bridges listen that were used
}

func start(t *testing.T) *bridged {
	t.Helper()
	binaries.Needs(t, "python3", "python3")
	b := &bridged{sandbox: remotetest.New(t)}
	s := service{b.sandbox}
	b.Bridge = &bridge.Bridge{
		Service: s, Client: http.DefaultClient,
		Box: func(ctx context.Context) (place.Box, error) { return s.Box(ctx, "") },
		Address: func(_ context.Context, port uint16) (bridge.Address, error) {
			b.at = append(b.at, port)
			return bridge.Address{URL: "http://" + net.JoinHostPort("127.0.0.1", itoa(port))}, nil
		},
	}
	return b
}

func itoa(port uint16) string { return strconv.Itoa(int(port)) }

// end ends the bridge.
func (b *bridged) end(t *testing.T) {
	t.Helper()
	for _, name := range b.sandbox.Programs(t) {
		assert.NilError(t, place.Cancel(t.Context(), b.sandbox, name))
	}
}

// echo is a server that sends back what it gets.
func echo(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestBytesPassBothWays(t *testing.T) {
	b := start(t)
	port := echo(t)
	for _, size := range []int{1, 125, 126, 65535, 65536, 3 << 20} {
		conn, err := b.Dial(t.Context(), t.Context(), port)
		assert.NilError(t, err)
		sent := strings.Repeat("0\xff", size/2+1)[:size]
		go func() { _, _ = io.WriteString(conn, sent) }()
		got := make([]byte, size)
		_, err = io.ReadFull(conn, got)
		assert.NilError(t, err)
		assert.Assert(t, string(got) == sent, "%d bytes", size)
		assert.NilError(t, conn.Close())
	}
}

func TestNothingListens(t *testing.T) {
	b := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	assert.NilError(t, l.Close())
	_, err = b.Dial(t.Context(), t.Context(), port)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
}

func TestABridgeThatHasEndedIsReplaced(t *testing.T) {
	b := start(t)
	port := echo(t)
	conn, err := b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
	b.end(t)
	_, err = conn.Read(make([]byte, 1))
	assert.Assert(t, err != nil)
	conn, err = b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
	assert.NilError(t, conn.Close())
	assert.Equal(t, len(b.at), 2)
}

func TestAConnectionEndsWithItsLife(t *testing.T) {
	b := start(t)
	life, die := context.WithCancel(t.Context())
	conn, err := b.Dial(t.Context(), life, echo(t))
	assert.NilError(t, err)
	die()
	_, err = conn.Read(make([]byte, 1))
	assert.Assert(t, err != nil)
}

func TestStrangersGetNowhere(t *testing.T) {
	b := start(t)
	port := echo(t)
	conn, err := b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
	assert.NilError(t, conn.Close())
	for _, path := range []string{"/", "/x/" + itoa(port), "/" + strings.Repeat("A", 26) + "/" + itoa(port), "//"} {
		resp, err := http.Get("http://" + net.JoinHostPort("127.0.0.1", itoa(b.at[0])) + path)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, resp.StatusCode, http.StatusNotFound, path)
	}
	// What is no HTTP ends its own connection alone.
	raw, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", itoa(b.at[0])))
	assert.NilError(t, err)
	_, err = io.WriteString(raw, "\x00\xff\r\n\r\n")
	assert.NilError(t, err)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if _, err := raw.Read(make([]byte, 100)); err != nil {
			return poll.Success()
		}
		return poll.Continue("it is open")
	}, poll.WithTimeout(2*time.Minute))
	_, err = b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
}
