package egress

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection that counts.
type conn struct {
	net.Conn
	session *Session
	host    string
	port    uint16
	began   time.Time

	received, sent atomic.Int64
	cut            atomic.Bool
	once           sync.Once
}

// Read gives what arrives as long as the installation may receive more.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	if c.session.received.Add(int64(n)) > c.session.options.MaxBytes {
		c.cut.Store(true)
		return 0, c.session.tooMuch()
	}
	return n, err
}

// Write sends as long as the installation may send more.
func (c *conn) Write(p []byte) (int, error) {
	if c.session.sent.Add(int64(len(p))) > c.session.options.MaxBytes {
		c.cut.Store(true)
		return 0, c.session.tooMuch()
	}
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// Close ends it, and says once what it was.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.session.conns.Add(-1)
		verdict := "allowed"
		if c.cut.Load() {
			verdict = "cut off"
		}
		c.session.logger.Info("package tunnel", "verdict", verdict, "host", c.host, "port", c.port,
			"received", c.received.Load(), "sent", c.sent.Load(), "seconds", time.Since(c.began).Seconds())
	})
	return err
}
