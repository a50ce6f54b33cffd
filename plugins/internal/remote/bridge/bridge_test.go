package bridge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/bridge"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// local is a sandbox that is this machine, and its service.
type local struct{}

func (local) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "bash", "-c", command).Output()
	return string(out), err
}

func (local) Upload(_ context.Context, path string, content []byte) error {
	return os.WriteFile(path, content, 0o600)
}

func (local) Box(context.Context, string) (place.Box, error)       { return place.Box{Runner: local{}}, nil }
func (local) Worth(error) (time.Duration, bool)                    { return 0, false }
func (local) Refused(error) bool                                   { return false }
func (local) Explain(_ context.Context, err error, _ string) error { return err }

// start returns the bridge, and where it listens once it was used.
func start(t *testing.T) (*bridge.Bridge, *[]uint16) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	var at []uint16
	b := &bridge.Bridge{
		Service: local{}, Client: http.DefaultClient,
		Box: func(context.Context) (place.Box, error) { return place.Box{Runner: local{}}, nil },
		Address: func(_ context.Context, port uint16) (bridge.Address, error) {
			at = append(at, port)
			return bridge.Address{URL: "http://" + net.JoinHostPort("127.0.0.1", itoa(port))}, nil
		},
	}
	t.Cleanup(end)
	return b, &at
}

func itoa(port uint16) string { return (&net.TCPAddr{Port: int(port)}).String()[1:] }

// end ends the bridges of this test.
func end() {
	states, err := os.ReadDir("/tmp/.sandbox-broker")
	if err != nil {
		return
	}
	for _, s := range states {
		if text, err := os.ReadFile("/tmp/.sandbox-broker/" + s.Name() + "/program.py"); err == nil && strings.Contains(string(text), "SANDBOX_BRIDGE_SECRET") {
			_ = place.Cancel(context.Background(), local{}, s.Name())
		}
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
	b, _ := start(t)
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
	b, _ := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	assert.NilError(t, l.Close())
	_, err = b.Dial(t.Context(), t.Context(), port)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
}

func TestABridgeThatHasEndedIsReplaced(t *testing.T) {
	b, at := start(t)
	port := echo(t)
	conn, err := b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
	end()
	_, err = conn.Read(make([]byte, 1))
	assert.Assert(t, err != nil)
	conn, err = b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
	assert.NilError(t, conn.Close())
	assert.Equal(t, len(*at), 2)
}

func TestAConnectionEndsWithItsLife(t *testing.T) {
	b, _ := start(t)
	life, die := context.WithCancel(t.Context())
	conn, err := b.Dial(t.Context(), life, echo(t))
	assert.NilError(t, err)
	die()
	_, err = conn.Read(make([]byte, 1))
	assert.Assert(t, err != nil)
}

func TestStrangersGetNowhere(t *testing.T) {
	b, at := start(t)
	port := echo(t)
	conn, err := b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
	assert.NilError(t, conn.Close())
	for _, path := range []string{"/", "/x/" + itoa(port), "/" + strings.Repeat("A", 26) + "/" + itoa(port), "//"} {
		resp, err := http.Get("http://" + net.JoinHostPort("127.0.0.1", itoa((*at)[0])) + path)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, resp.StatusCode, http.StatusNotFound, path)
	}
	// What is no HTTP ends its own connection alone.
	raw, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", itoa((*at)[0])))
	assert.NilError(t, err)
	_, err = io.WriteString(raw, "\x00\xff\r\n\r\n")
	assert.NilError(t, err)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if _, err := raw.Read(make([]byte, 100)); err != nil {
			return poll.Success()
		}
		return poll.Continue("it is open")
	})
	_, err = b.Dial(t.Context(), t.Context(), port)
	assert.NilError(t, err)
}
