package admission

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How long to wait after an error of accept: twice as long after each in a row.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Listener lets connections through the gate. Its connections are *Conn.
type Listener struct {
	net.Listener
	gate    *Gate
	closing sync.Once
	closed  chan struct{}
}

// Listener stands the gate before a listener, which it takes over.
func (g *Gate) Listener(listener net.Listener) *Listener {
	return &Listener{Listener: listener, gate: g, closed: make(chan struct{})}
}

// Close closes the listener once. Connections live on.
func (l *Listener) Close() (err error) {
	l.closing.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// Accept waits for a connection that may stay. An error is the end of the listener.
func (l *Listener) Accept() (net.Conn, error) {
	pause := firstPause
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if isEnd(err) {
				return nil, err // unwrapped: servers look into it
			}
			l.gate.failed(err)
			if !l.sleep(pause) {
				return nil, net.ErrClosed
			}
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		if ticket := l.gate.enter(conn, l.closed); ticket != nil {
			return &Conn{Conn: conn, Ticket: ticket}, nil
		}
		_ = conn.Close()
	}
}

// isEnd reports whether a listener will never accept again. What else accept can say
// is about one connection or passes: no descriptors, no memory, no network.
func isEnd(err error) bool {
	for _, end := range []error{net.ErrClosed, unix.EBADF, unix.EINVAL, unix.ENOTSOCK, unix.EFAULT} {
		if errors.Is(err, end) {
			return true
		}
	}
	_, system := errors.AsType[unix.Errno](err)
	timeout, ok := errors.AsType[net.Error](err)
	return !system && (!ok || !timeout.Timeout())
}

// failed notes an error of accept and, where descriptors are what is lacking, closes
// some strangers' connections.
func (g *Gate) failed(err error) {
	g.mu.Lock()
	g.counts.Errors++
	g.untold.Errors++
	g.untold.Err = err
	g.mu.Unlock()
	if !errors.Is(err, unix.ECONNABORTED) {
		g.relieve()
	}
	g.mu.Lock()
	event, due := g.dueEvent(time.Now())
	g.mu.Unlock()
	if due && g.report != nil {
		g.report(event)
	}
}

// sleep reports false if the listener was closed meanwhile.
func (l *Listener) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// Conn is a connection that was let in. Who takes Conn.Conn out of it calls
// Ticket.Leave when it is closed.
type Conn struct {
	net.Conn
	Ticket *Ticket
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	defer c.Ticket.Leave()
	return c.Conn.Close()
}
