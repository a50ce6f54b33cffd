package handover

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection on its way through the http.Server. What is read from it
// is the head of the request first and then what fasthttp has left unread.
type conn struct {
	net.Conn // the socket itself
	handler  http.Handler
	bodyLeft atomic.Bool // the body was not read to its end

	reading sync.Mutex // held while a Read is in progress
	head    io.Reader  // nil when it was read
	ahead   io.Reader  // the socket behind what fasthttp has read ahead; nil when that is over

	once sync.Once
	left chan struct{} // closed when the http.Server, or who hijacked from it, is done
}

// Lingerer is a connection that can read on for a while after it was closed, so
// that a client that still writes gets the answer and not a reset.
type Lingerer interface{ Linger() }

// attach gives the connection what fasthttp hands out to who hijacks.
func (c *conn) attach(hijacked io.Reader) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.ahead = hijacked
}

// detach returns when nobody reads any more: the buffer of fasthttp goes back to
// it and becomes that of another connection.
func (c *conn) detach() { c.attach(nil) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.ahead == nil {
		return 0, net.ErrClosed
	}
	if c.head != nil {
		n, err := c.head.Read(p)
		if err == nil {
			return n, nil
		}
		c.head = nil
	}
	return c.ahead.Read(p)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	var err error
	c.once.Do(func() {
		defer close(c.left)
		if l, ok := c.Conn.(Lingerer); ok && c.bodyLeft.Load() {
			l.Linger()
		}
		err = c.Conn.Close()
	})
	return err
}

// cut closes the connection whatever is still on it.
func (c *conn) cut() {
	c.bodyLeft.Store(false)
	_ = c.Conn.Close()
	_ = c.Close()
}

// patientBody waits for a client that pauses, but not for ever.
type patientBody struct {
	io.ReadCloser
	conn  *conn
	stall time.Duration
}

func (b *patientBody) Read(p []byte) (int, error) {
	if b.stall > 0 {
		_ = b.conn.SetReadDeadline(time.Now().Add(b.stall)) // if it fails, so does the read
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	if err == io.EOF {
		b.conn.bodyLeft.Store(false)
	}
	return n, err
}
