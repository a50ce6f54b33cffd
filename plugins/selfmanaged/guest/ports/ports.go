// Package ports connects callers to the TCP ports that programs in the sandbox
// listen on. The connections run over the guest's own stream, so that the sandbox
// needs no network for them.
//
// Only loopback is dialled. What is spoken there is not looked at.
package ports

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// MaxConnections is how many connections there may be at once: each has
	// buffers, and they come out of the sandbox's own memory.
	MaxConnections = 128
	// dialTimeout bounds the wait for a program that listens and accepts nothing.
	dialTimeout = 5 * time.Second
)

// Ports implements sdk.Ports for this sandbox, the one instance that it knows. The zero
// value is ready to use.
type Ports struct{ open atomic.Int32 }

// DialPort implements sdk.Ports.
func (p *Ports) DialPort(ctx context.Context, _ string, port uint16) (net.Conn, error) {
	if p.open.Add(1) > MaxConnections {
		p.open.Add(-1)
		return nil, sdk.Errorf(sdk.CodeQuotaExceeded, "the instance has %d connections to its ports already", MaxConnections)
	}
	conn, err := dial(ctx, port)
	if err != nil {
		p.open.Add(-1)
		return nil, err
	}
	return &connection{TCPConn: conn, closed: sync.OnceFunc(func() { p.open.Add(-1) })}, nil
}

// connection is one that is counted until it is closed.
type connection struct {
	*net.TCPConn
	closed func()
}

// Read tells the caller that the connection broke, and nothing of how.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = sdk.Errorf(sdk.CodeConnectionFailed, "the connection broke")
	}
	return n, err
}

// Close ends the connection.
func (c *connection) Close() error {
	defer c.closed()
	return c.TCPConn.Close()
}

// dial tries both loopback addresses: what listens on localhost has one of them.
func dial(ctx context.Context, port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10)))
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return tcp, nil
		}
		if ctx.Err() != nil {
			return nil, sdk.Errorf(sdk.CodeConnectionFailed, "what listens on port %d of the instance does not accept connections", port)
		}
	}
	return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens on port %d of the instance", port)
}
