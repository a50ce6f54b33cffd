package guest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// abandonedAfter reads AbandonedVariable.
func abandonedAfter(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	after, err := time.ParseDuration(text)
	if err == nil && after < 0 {
		err = errors.New("is negative")
	}
	return after, err
}

// attendance knows whether anybody needs the sandbox of a guest that listens: who is
// connected, or was a short time ago, or has it for a time that is not over. The machine of
// its plugin may be gone for ever, and nobody else ends it. The zero value has nobody yet.
type attendance struct {
	mu        sync.Mutex
	connected int
	left      time.Time // when the last connection ended
	until     time.Time
	forever   bool
	// changed wakes who waits, if anybody does.
	changed chan struct{}
}

// keepUntil has the sandbox last until then.
func (a *attendance) keepUntil(until time.Time) {
	a.change(func() { a.until, a.forever = until, false })
}

// keepForever has it last although nobody is connected.
func (a *attendance) keepForever() { a.change(func() { a.forever = true }) }

func (a *attendance) change(how func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// abandoned waits until nobody has been connected for so long and nobody has the sandbox. It
// returns false if ctx ends before; after 0 it does not wait for anything else.
func (a *attendance) abandoned(ctx context.Context, after time.Duration) bool {
	if after == 0 {
		<-ctx.Done()
		return false
	}
	a.change(func() { a.left = time.Now() })
	for {
		left, changed := a.remaining(after)
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// checkClock is how often it is seen whether the clock, by which the time of an instance is
// told, was set.
const checkClock = time.Hour

// remaining is how long the sandbox has at least, unless something changes.
func (a *attendance) remaining(after time.Duration) (least time.Duration, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	if a.connected > 0 || a.forever {
		return checkClock, a.changed
	}
	least = max(time.Until(a.left.Add(after)), time.Until(a.until))
	return min(least, checkClock), a.changed
}

// counting counts the connections that a listener accepts, all of which are of who may have
// the sandbox.
func (a *attendance) counting(l net.Listener) net.Listener { return &attendedListener{l, a} }

type attendedListener struct {
	net.Listener
	attendance *attendance
}

// Accept implements net.Listener.
func (l *attendedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.attendance.change(func() { l.attendance.connected++ })
	return &attendingConn{Conn: conn, gone: sync.OnceFunc(func() {
		l.attendance.change(func() {
			l.attendance.connected--
			l.attendance.left = time.Now()
		})
	})}, nil
}

type attendingConn struct {
	net.Conn
	gone func()
}

// Close implements net.Conn.
func (c *attendingConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
