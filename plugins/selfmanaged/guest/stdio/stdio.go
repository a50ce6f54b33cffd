// Package stdio makes one network connection of a pair of pipes, for gRPC
// between the self-managed provider and the guest in its sandbox. Both sides use
// it: the guest as a listener (Line), the provider as a dialer that dials once. In a copy
// of a sandbox the pipes are others, and the connection is a new one over them.
package stdio

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// How many bytes are read at once. Ordinary messages are small, and each sandbox has a
// buffer at both ends. For a file, each read of the pipe is dear in gVisor.
const (
	smallRead = 64 << 10
	largeRead = 512 << 10
)

// calm is how many reads in a row must be small for a large buffer to go.
const calm = 64

// Conn is a connection over a reader and a writer. It has no deadlines: gRPC
// bounds its calls itself, and closing either end ends both directions.
type Conn struct {
	in     io.ReadCloser
	out    io.WriteCloser
	once   sync.Once
	closed chan struct{}

	buf   []byte // of which rest was read, and not taken yet
	rest  []byte
	small int // reads in a row that a small buffer would have done for
}

var _ net.Conn = (*Conn)(nil)

// NewConn takes ownership of both ends.
func NewConn(in io.ReadCloser, out io.WriteCloser) *Conn {
	return &Conn{in: in, out: out, closed: make(chan struct{})}
}

// Read implements net.Conn, for one caller at a time. It needs no buffer above it.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		c.resize()
		n, err := c.in.Read(c.buf)
		c.rest = c.buf[:n]
		if n < smallRead {
			c.small++
		} else {
			c.small = 0
		}
		if n == 0 {
			return 0, err // an error beside bytes comes again
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// resize makes the buffer large once it was filled, and small when that was long ago.
func (c *Conn) resize() {
	switch {
	case len(c.buf) == 0, len(c.buf) == largeRead && c.small >= calm:
		c.buf = make([]byte, smallRead)
	case len(c.buf) == smallRead && c.small == 0:
		c.buf = make([]byte, largeRead)
	}
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) { return c.out.Write(p) }

// Close closes both ends.
func (c *Conn) Close() error {
	var err error
	c.once.Do(func() {
		err = errors.Join(c.out.Close(), c.in.Close())
		close(c.closed)
	})
	return err
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }

// SetDeadline does nothing; see Conn.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing; see Conn.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing; see Conn.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

type addr struct{}

func (addr) Network() string { return "stdio" }
func (addr) String() string  { return "stdio" }

// Dialer returns a function for grpc.WithContextDialer that hands out conn the
// first time and fails after: a lost connection means a lost sandbox.
func Dialer(conn *Conn) func(context.Context, string) (net.Conn, error) {
	var once sync.Once
	return func(context.Context, string) (net.Conn, error) {
		var c net.Conn
		once.Do(func() { c = conn })
		if c == nil {
			return nil, io.EOF
		}
		return c, nil
	}
}
