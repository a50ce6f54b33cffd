// Package pipe has our ends of the pipes or the terminal of a program: what package
// localcommands and the guest of the self-managed provider have in common.
//
// A program may give its end to whoever it likes, over a socket for example, so that the
// end of the program is not the end of the pipe: whoever reads says when nothing more
// counts, and whoever writes waits no longer than its context.
package pipe

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRest is more than a pipe or a terminal holds. Who keeps on writing after the
// end is not listened to any longer.
const maxRest = 1 << 20

// Reader reads from our end. One goroutine may read; the other calls may come from
// any.
type Reader struct {
	file *os.File

	mu   sync.Mutex
	over bool
	rest int // bytes that may still be read after End
}

// NewReader takes ownership of a file that has deadlines.
func NewReader(file *os.File) *Reader { return &Reader{file: file, rest: maxRest} }

// Read implements io.Reader. After End it waits for nothing and ends with io.EOF
// when the pipe is empty. With a deadline of SetReadDeadline it fails with
// os.ErrDeadlineExceeded.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if !over {
		return n, err
	}
	return r.readRest(p)
}

// readRest reads what is there. Deadlines are of no use for that: one that has
// passed keeps the file from being read at all.
func (r *Reader) readRest(p []byte) (n int, err error) {
	raw, err := r.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if p = p[:min(len(p), r.rest)]; len(p) == 0 {
		return 0, io.EOF
	}
	var readErr error
	if err := raw.Control(func(fd uintptr) { n, readErr = unix.Read(int(fd), p) }); err != nil {
		return 0, err
	}
	if n <= 0 || readErr != nil { // EAGAIN, or EIO of a terminal
		return 0, io.EOF
	}
	r.rest -= n
	return n, nil
}

// SetReadDeadline bounds reads until End is called, as os.File does.
func (r *Reader) SetReadDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil
	}
	return r.file.SetReadDeadline(t)
}

// End says that the program has ended: what is in the pipe now is its last.
func (r *Reader) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	_ = r.file.SetReadDeadline(time.Unix(1, 0)) // it fails for one that is closed
}

// SyscallConn is that of the file.
func (r *Reader) SyscallConn() (syscall.RawConn, error) { return r.file.SyscallConn() }

// Close closes our end.
func (r *Reader) Close() error { return r.file.Close() }
