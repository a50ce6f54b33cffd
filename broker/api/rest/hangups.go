package rest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups tells requests at once that their client has gone. One epoll serves all of them,
// which costs a request two system calls and nothing while it lasts. Go's own does not tell
// of a client that goes while nobody reads from it.
type hangups struct {
	epoll *os.File

	mu   sync.Mutex
	last uint64
	// gone has what to call, by the number of the watch: descriptors come again.
	gone map[uint64]func()
}

func newHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// Go waits for it as for a socket, if it is one that does not block.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	return &hangups{epoll: os.NewFile(uintptr(fd), "epoll"), gone: map[uint64]func(){}}, nil
}

// run calls those whose client has gone, until ctx ends.
func (h *hangups) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = h.epoll.Close() })()
	raw, err := h.epoll.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for clients that go: %w", err)
	}
	var events [64]unix.EpollEvent
	for ctx.Err() == nil {
		n, waitErr := 0, error(nil)
		err := raw.Read(func(fd uintptr) bool {
			n, waitErr = unix.EpollWait(int(fd), events[:], 0)
			return n != 0
		})
		if err := errors.Join(err, waitErr); err != nil && !errors.Is(err, unix.EINTR) && ctx.Err() == nil {
			return fmt.Errorf("wait for clients that go: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			h.tell(numberIn(e))
		}
	}
	return nil
}

func (h *hangups) tell(number uint64) {
	h.mu.Lock()
	gone := h.gone[number]
	delete(h.gone, number)
	h.mu.Unlock()
	if gone != nil {
		gone()
	}
}

// watch calls gone, once, when the client at the other end of a socket has closed its side,
// whatever it sent before that and nobody has read: the next request, or the alert with
// which TLS ends. A client that only closed its sending half looks gone too. A call of gone
// may be under way when stop returns.
func (h *hangups) watch(socket syscall.RawConn, gone func()) (stop func(), err error) {
	h.mu.Lock()
	h.last++
	number := h.last
	h.gone[number] = gone
	h.mu.Unlock()
	forget := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.gone, number)
	}
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(uint32(number)), Pad: int32(uint32(number >> 32))} //nolint:gosec // halves of a number
	if err := h.control(socket, unix.EPOLL_CTL_ADD, &event); err != nil {
		forget()
		return nil, err
	}
	return func() {
		_ = h.control(socket, unix.EPOLL_CTL_DEL, nil) // one that is closed is not in it any more
		forget()
	}, nil
}

func numberIn(e unix.EpollEvent) uint64 {
	return uint64(uint32(e.Pad))<<32 | uint64(uint32(e.Fd)) //nolint:gosec // halves of a number
}

// control changes what epoll has of a socket, which is not closed meanwhile: its descriptor
// could be another's.
func (h *hangups) control(socket syscall.RawConn, operation int, event *unix.EpollEvent) error {
	epoll, err := h.epoll.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch a client: %w", err)
	}
	var inner, failed error
	err = epoll.Control(func(set uintptr) {
		inner = socket.Control(func(fd uintptr) { failed = unix.EpollCtl(int(set), operation, int(fd), event) })
	})
	return errors.Join(err, inner, os.NewSyscallError("epoll_ctl", failed))
}
