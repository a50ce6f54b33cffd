package rest

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sys/unix"
)

// clientPoll is how long it may take until a client's going is noticed.
const clientPoll = 150 * time.Millisecond

// contextOf returns the context of a request: it ends with its deadline, when
// the client goes away (unless it left an Idempotency-Key), and when the server is
// closed. Neither Fiber nor fasthttp has one: theirs end for all requests when a
// shutdown begins, and never for a client. The cancel function waits for the poll to
// end, so that nothing touches the connection after the handler.
func (s *Server) contextOf(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(s.exchangeOf(c).asked(s.base), s.requestTimeout())
	if s.exchangeOf(c).keyed {
		return ctx, cancel // its answer is kept for the client's return
	}
	conn := c.Context().Conn()
	stop, stopped := make(chan struct{}), make(chan struct{})
	s.tasks.Go("watch a client", func() {
		defer close(stopped)
		ticker := time.NewTicker(clientPoll)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				if clientGone(conn) {
					cancel()
					return
				}
			}
		}
	})
	return ctx, sync.OnceFunc(func() {
		close(stop)
		<-stopped
		cancel()
	})
}

// clientGone asks the system whether the client has closed its side, whatever it
// sent before that and nobody has read: the next request, or the alert with which
// TLS ends. A client that only closed its sending half looks gone too.
func clientGone(conn net.Conn) bool {
	if secure, ok := conn.(*secureConn); ok {
		conn = secure.socket
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(look, 0)
		gone = n > 0 || err != nil && err != unix.EINTR
	})
	return err != nil || gone
}
