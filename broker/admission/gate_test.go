package admission_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
)

// fakeConn is a connection from an address that knows whether it was closed.
type fakeConn struct {
	net.Conn
	from   string
	mu     sync.Mutex
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}

func (c *fakeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *fakeConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// fakeListener hands out what it is given: connections and errors.
type fakeListener struct {
	incoming chan any
	closed   chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case next := <-l.incoming:
		if err, ok := next.(error); ok {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
		}
		return next.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error   { close(l.closed); return nil }
func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

// scene is a gate before a listener, with what it reported.
type scene struct {
	t        *testing.T
	gate     *admission.Gate
	inner    *fakeListener
	listener *admission.Listener
	events   []admission.Event
}

func newScene(t *testing.T, bounds admission.Bounds) *scene {
	s := &scene{t: t, inner: &fakeListener{incoming: make(chan any, 10_000), closed: make(chan struct{})}}
	s.gate = admission.NewGate(bounds, func(e admission.Event) { s.events = append(s.events, e) })
	s.listener = s.gate.Listener(s.inner)
	return s
}

// come lets a connection from an address in.
func (s *scene) come(from string) (*fakeConn, *admission.Conn) {
	s.t.Helper()
	conn := &fakeConn{from: from}
	s.inner.incoming <- conn
	accepted, err := s.listener.Accept()
	assert.NilError(s.t, err)
	admitted := accepted.(*admission.Conn)
	assert.Assert(s.t, admitted.Conn == net.Conn(conn), "another connection")
	return conn, admitted
}

var wide = admission.Bounds{Connections: 100, Strangers: 50, StrangersPerAddress: 50, PerOwner: 50}

func TestTheOldestStrangerMakesRoomForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := wide
		bounds.Strangers = 3
		s := newScene(t, bounds)
		known, conn := s.come("127.0.0.1")
		conn.Ticket.Trust()
		var strangers []*fakeConn
		for range 10 {
			stranger, _ := s.come("127.0.0.1")
			strangers = append(strangers, stranger)
		}
		for i, stranger := range strangers {
			assert.Check(t, stranger.isClosed() == (i < 7), i)
		}
		assert.Check(t, !known.isClosed())
		counts := s.gate.Counts()
		assert.DeepEqual(t, counts, admission.Counts{Known: 1, Strangers: 3, Displaced: 7})
		assert.Check(t, len(s.events) > 0)
	})
}

func TestAStrangerHasAMomentToShowItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := wide
		bounds.Strangers = 1
		s := newScene(t, bounds)
		first, conn := s.come("127.0.0.1")
		began := time.Now()
		second := make(chan *fakeConn)
		go func() {
			c, _ := s.come("127.0.0.1")
			second <- c
		}()
		synctest.Wait()
		assert.Check(t, !first.isClosed(), "it was closed before it could say anything")
		conn.Ticket.Trust() // makes room at once
		<-second
		assert.Equal(t, time.Since(began), time.Duration(0))
		third, _ := s.come("127.0.0.1")
		assert.Check(t, time.Since(began) > 0 && !first.isClosed() && !third.isClosed())
	})
}

func TestAnAddressDoesNotTakeTheRoomOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		from   func(i int) string
		shared string
		want   int // strangers of that address that are left
	}{
		"one address":              {from: func(int) string { return "10.1.1.1" }, want: 5},
		"one IPv6 network":         {from: func(i int) string { return fmt.Sprintf("2001:db8:1:1::%x", i+1) }, want: 5},
		"IPv4 written as IPv6":     {from: func(int) string { return "::ffff:10.1.1.1" }, want: 5},
		"different addresses":      {from: func(i int) string { return fmt.Sprintf("10.1.1.%d", i) }, want: 20},
		"loopback, from a proxy":   {from: func(int) string { return "127.0.0.1" }, want: 20},
		"IPv6's loopback":          {from: func(int) string { return "::1" }, want: 20},
		"a proxy elsewhere":        {from: func(int) string { return "10.1.1.1" }, shared: "10.1.0.0/16", want: 20},
		"a proxy elsewhere, IPv6":  {from: func(int) string { return "2001:db8:1:1::7" }, shared: "2001:db8:1:1::7/128", want: 20},
		"one that is not a proxy ": {from: func(int) string { return "10.2.1.1" }, shared: "10.1.0.0/16", want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := wide
				bounds.StrangersPerAddress = 5
				if test.shared != "" {
					bounds.Shared = []netip.Prefix{netip.MustParsePrefix(test.shared)}
				}
				s := newScene(t, bounds)
				other, _ := s.come("192.0.2.1")
				for i := range 20 {
					s.come(test.from(i))
					time.Sleep(time.Second) // of the bubble's clock: all are old
				}
				assert.Check(t, !other.isClosed())
				assert.Equal(t, s.gate.Counts().Strangers, test.want+1)
			})
		})
	}
}

func TestOfAnAddressThatComesTooFastTheNewOnesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := wide
		bounds.StrangersPerAddress = 2
		s := newScene(t, bounds)
		first, _ := s.come("10.1.1.1")
		s.come("10.1.1.1")
		flood := &fakeConn{from: "10.1.1.1"}
		s.inner.incoming <- flood
		began := time.Now()
		s.come("192.0.2.1") // does not wait behind it
		assert.Check(t, flood.isClosed() && !first.isClosed())
		assert.Equal(t, time.Since(began), time.Duration(0))
		assert.DeepEqual(t, s.gate.Counts(), admission.Counts{Strangers: 3, Refused: 1})
	})
}

func TestWhenAllRoomIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := wide
		bounds.Connections, bounds.PerOwner = 3, 3
		s := newScene(t, bounds)
		var known []*fakeConn
		var tickets []*admission.Ticket
		for range 3 {
			conn, admitted := s.come("10.1.1.1")
			assert.Assert(t, admitted.Ticket.Own("acme"))
			known, tickets = append(known, conn), append(tickets, admitted.Ticket)
		}
		refused := &fakeConn{from: "10.1.1.1"}
		s.inner.incoming <- refused
		time.AfterFunc(time.Second, func() { tickets[1].SetIdle(true); s.inner.incoming <- &fakeConn{from: "10.1.1.1"} })
		_, err := s.listener.Accept()
		assert.NilError(t, err)
		assert.Check(t, refused.isClosed(), "all were in use")
		assert.Check(t, !known[0].isClosed() && known[1].isClosed() && !known[2].isClosed(), "the idle one makes room")
		assert.Check(t, tickets[1].Displaced() && !tickets[0].Displaced())
		assert.DeepEqual(t, s.gate.Counts(), admission.Counts{Known: 2, Strangers: 1, Idle: 1, Refused: 1})
	})
}

func TestAnOwnerHasAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := wide
		bounds.PerOwner = 2
		s := newScene(t, bounds)
		var all []*admission.Conn
		for i := range 3 {
			_, conn := s.come("10.1.1.1")
			assert.Equal(t, conn.Ticket.Own("acme"), i < 2)
			all = append(all, conn)
		}
		_, other := s.come("10.1.1.1")
		assert.Check(t, other.Ticket.Own("rival"))
		assert.NilError(t, all[0].Close())
		assert.NilError(t, all[0].Close())
		assert.Check(t, all[2].Ticket.Own("acme"), "there is room again")
		assert.Check(t, all[1].Ticket.Own("rival"), "a proxy uses its connections for all its clients")
		_, more := s.come("10.1.1.1")
		assert.Check(t, more.Ticket.Own("acme"))
		for _, conn := range []*admission.Conn{all[1], all[2], other, more} {
			assert.NilError(t, conn.Close())
		}
		counts := s.gate.Counts()
		assert.DeepEqual(t, counts, admission.Counts{Overdrawn: 1})
	})
}

func TestErrorsOfAcceptAreWaitedOut(t *testing.T) {
	for _, err := range []error{
		unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EPROTO, unix.EPERM, unix.ENETDOWN, unix.EINTR, unix.EAGAIN,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, wide)
				stranger, _ := s.come("10.1.1.1")
				for range 20 {
					s.inner.incoming <- err
				}
				s.come("10.1.1.1")
				assert.Equal(t, s.gate.Counts().Errors, uint64(20))
				assert.Equal(t, stranger.isClosed(), !errors.Is(err, unix.ECONNABORTED), "a stranger's descriptor is given back")
				assert.Assert(t, len(s.events) > 1)
				assert.ErrorIs(t, s.events[0].Err, err)
			})
		})
	}
}

func TestTheEndOfAListener(t *testing.T) {
	for name, end := range map[string]error{"closed": net.ErrClosed, "no descriptor": unix.EBADF, "not listening": unix.EINVAL, "something else": io.EOF} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, wide)
			s.inner.incoming <- end
			_, err := s.listener.Accept()
			assert.ErrorIs(t, err, end)
		})
	}
	t.Run("while it waits for better times", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, wide)
			s.inner.incoming <- unix.EMFILE
			ended := make(chan error)
			go func() {
				_, err := s.listener.Accept()
				ended <- err
			}()
			synctest.Wait()
			assert.NilError(t, s.listener.Close())
			assert.NilError(t, s.listener.Close())
			assert.ErrorIs(t, <-ended, net.ErrClosed)
		})
	})
}

func TestBoundsLeaveDescriptorsForTheRest(t *testing.T) {
	asked := admission.Bounds{Connections: 10_000, Strangers: 1000, StrangersPerAddress: 100, PerOwner: 5000}
	for descriptors, want := range map[uint64]admission.Bounds{
		20:      {Connections: 16, Strangers: 8, StrangersPerAddress: 4, PerOwner: 12},
		256:     {Connections: 160, Strangers: 80, StrangersPerAddress: 40, PerOwner: 120},
		1024:    {Connections: 768, Strangers: 384, StrangersPerAddress: 100, PerOwner: 576},
		4096:    {Connections: 3072, Strangers: 1000, StrangersPerAddress: 100, PerOwner: 2304},
		1 << 20: asked,
		1 << 63: asked,
	} {
		assert.Check(t, equal(asked.Within(descriptors), want), "%d: %+v", descriptors, asked.Within(descriptors))
	}
}

func equal(a, b admission.Bounds) bool {
	return a.Connections == b.Connections && a.Strangers == b.Strangers && a.StrangersPerAddress == b.StrangersPerAddress && a.PerOwner == b.PerOwner
}

func TestATicketOfNobody(t *testing.T) {
	var none *admission.Ticket
	none.Trust()
	none.SetIdle(true)
	none.Leave()
	assert.Check(t, none.Own("x") && !none.Displaced())
}
