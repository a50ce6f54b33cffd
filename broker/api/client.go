package api

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
// closed. Neither Fiber nor
// fasthttp has one: theirs end for all requests when a shutdown begins, and
// never for a client. The cancel function waits for the poll to end, so that
// nothing touches the connection after the handler.
func (s *Server) contextOf(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(s.base, s.requestTimeout())
	if exchangeOf(c).keyed {
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

// clientGone looks at the socket without taking anything from it. A client that
// only closed its sending half looks gone too. One that sent the next request
// already hides its going; then the execution runs to its end.
func clientGone(conn net.Conn) bool {
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
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		waiting := err == unix.EAGAIN || err == unix.EINTR
		gone = n <= 0 && !waiting
	})
	return err != nil || gone
}
