package rest

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// connected is a client and the server's side of its connection.
func connected(t *testing.T) (client net.Conn, server syscall.RawConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer listener.Close()
	client, err = net.Dial("tcp", listener.Addr().String())
	assert.NilError(t, err)
	conn, err := listener.Accept()
	assert.NilError(t, err)
	t.Cleanup(func() {
		_ = client.Close()
		_ = conn.Close()
	})
	server, err = conn.(*net.TCPConn).SyscallConn()
	assert.NilError(t, err)
	return client, server
}

func watching(t *testing.T) *hangups {
	t.Helper()
	h, err := newHangups()
	assert.NilError(t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.run(ctx) }()
	t.Cleanup(func() {
		end()
		assert.NilError(t, <-ended)
	})
	return h
}

// told is what is called for a client that has gone.
func told() (gone chan struct{}, tell func()) {
	gone = make(chan struct{})
	return gone, func() { close(gone) } // a second call would panic
}

func wait(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("nobody was told")
	}
}

func TestAClientThatGoesIsNoticed(t *testing.T) {
	for name, goes := range map[string]func(*net.TCPConn) error{
		"it closes":                    (*net.TCPConn).Close,
		"it closes its half":           (*net.TCPConn).CloseWrite,
		"it resets":                    func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
		"it has sent the next request": func(c *net.TCPConn) error { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n")); return c.Close() },
		"it was gone before the watch": nil,
	} {
		t.Run(name, func(t *testing.T) {
			h := watching(t)
			client, server := connected(t)
			if goes == nil {
				assert.NilError(t, client.Close())
			}
			gone, tell := told()
			stop, err := h.watch(server, tell)
			assert.NilError(t, err)
			if goes != nil {
				assert.NilError(t, goes(client.(*net.TCPConn)))
			}
			wait(t, gone)
			stop()
		})
	}
}

func TestOnlyThoseWhoWatchAreTold(t *testing.T) {
	h := watching(t)
	stays, one := connected(t)
	_, tell := told()
	stop, err := h.watch(one, tell)
	assert.NilError(t, err)
	defer stop()
	for range 100 { // descriptors come again
		client, server := connected(t)
		none, err := h.watch(server, func() { t.Error("this watch was over") })
		assert.NilError(t, err)
		none()
		gone, tell := told()
		again, err := h.watch(server, tell)
		assert.NilError(t, err)
		assert.NilError(t, client.Close())
		wait(t, gone)
		again()
	}
	_, err = stays.Write([]byte("x"))
	assert.NilError(t, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.Equal(t, len(h.gone), 1, "what is over is forgotten")
}

func TestASocketThatIsClosedIsNotWatched(t *testing.T) {
	h := watching(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	assert.NilError(t, err)
	raw, err := client.(*net.TCPConn).SyscallConn()
	assert.NilError(t, err)
	stop, err := h.watch(raw, func() {})
	assert.NilError(t, err)
	assert.NilError(t, client.Close())
	stop()
	_, err = h.watch(raw, func() {})
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.Equal(t, len(h.gone), 0)
}
