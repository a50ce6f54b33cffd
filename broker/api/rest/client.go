package rest

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/gofiber/fiber/v2"
)

// contextOf returns the context of a request: it ends with its deadline, when
// the client goes away (unless it left an Idempotency-Key), and when the server is
// closed. Neither Fiber nor fasthttp has one: theirs end for all requests when a
// shutdown begins, and never for a client. The cancel function must be called before the
// handler returns: nothing touches the connection after it.
func (s *Server) contextOf(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(s.exchangeOf(c).asked(s.base), s.requestTimeout())
	if s.exchangeOf(c).keyed {
		return ctx, cancel // its answer is kept for the client's return
	}
	stop := s.watchClient(c.Context().Conn(), cancel)
	return ctx, sync.OnceFunc(func() {
		stop()
		cancel()
	})
}

// watchClient calls gone when the client has gone, until stop is called. Where that cannot
// be found out it is the deadline that ends a request.
func (s *Server) watchClient(conn net.Conn, gone func()) (stop func()) {
	stop = func() {}
	hangups := s.clients()
	if secure, ok := conn.(*secureConn); ok {
		conn = secure.socket
	}
	socket, ok := conn.(syscall.Conn)
	if hangups == nil || !ok {
		return stop
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		var forget func()
		if forget, err = hangups.watch(raw, gone); err == nil {
			return forget
		}
	}
	if errors.Is(err, net.ErrClosed) {
		gone()
	} else {
		s.opts.Logger.Error("whether a client has gone cannot be told", "error", err)
	}
	return stop
}

// clients returns what watches clients, which begins with the first request; nil if the
// system does not let it.
func (s *Server) clients() *hangups {
	s.watching.Do(func() {
		h, err := newHangups()
		if err != nil {
			s.opts.Logger.Error("clients that go cannot be noticed; their requests end by themselves", "error", err)
			return
		}
		s.hangups = h
		s.tasks.Go("watch the clients", func() {
			if err := h.run(s.base); err != nil {
				s.opts.Logger.Error("clients that go are not noticed any more", "error", err)
			}
		})
	})
	return s.hangups
}
