package api

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// A body above the limit is refused before it was read. Closing the connection
// then would reset it while the client is still writing, and the client would
// see that instead of the 413. So such a connection lingers: the answer is
// sent, then what the client still has is read and thrown away, up to these
// bounds.
const (
	lingerBytes = 64 << 20
	lingerTime  = 5 * time.Second
)

// lingeringListener makes connections that can linger.
type lingeringListener struct{ net.Listener }

func (l lingeringListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err // unwrapped: fasthttp looks into it
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &lingeringConn{TCPConn: tcp}, nil
	}
	return conn, nil
}

type lingeringConn struct {
	*net.TCPConn
	linger atomic.Bool
}

// linger makes the connection drain when it is closed.
func linger(conn net.Conn) {
	if c, ok := conn.(*lingeringConn); ok {
		c.linger.Store(true)
	}
}

// Close closes the connection, in its own time if it lingers.
func (c *lingeringConn) Close() error {
	if c.linger.Swap(false) {
		if err := c.drain(); err != nil {
			_ = c.TCPConn.Close()
			return err
		}
	}
	return c.TCPConn.Close()
}

func (c *lingeringConn) drain() error {
	if err := c.CloseWrite(); err != nil {
		return fmt.Errorf("half-close: %w", err)
	}
	if err := c.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	_, _ = io.CopyN(io.Discard, c.TCPConn, lingerBytes) // it ends as it ends
	return nil
}
