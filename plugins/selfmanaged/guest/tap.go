package guest

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
)

// tap reads what a context prints, for as long as it lives. What is printed
// while no execution runs, by a thread that an earlier one left behind, is
// dropped: it is nobody's, and a full pipe would stop the thread.
type tap struct {
	from    *pipe.Reader
	flushed chan struct{}
	ended   chan struct{} // closed when there is nothing more

	mu   sync.Mutex
	sink func([]byte)
}

func newTap(from *pipe.Reader) *tap {
	t := &tap{from: from, flushed: make(chan struct{}), ended: make(chan struct{})}
	go t.read()
	return t
}

// to directs what comes from now on; nil drops it.
func (t *tap) to(sink func([]byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sink = sink
}

// flush returns when everything that is in the pipe now has gone to the sink.
// Only one goroutine may flush.
func (t *tap) flush() {
	// The reader is interrupted and takes the rest itself.
	if t.from.SetReadDeadline(time.Unix(1, 0)) != nil {
		<-t.ended // it is closed
		return
	}
	select {
	case <-t.flushed:
	case <-t.ended:
	}
}

func (t *tap) read() {
	defer close(t.ended)
	buf := make([]byte, 32<<10)
	for {
		n, err := t.from.Read(buf)
		t.deliver(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = t.rest(buf)
			t.flushed <- struct{}{}
		}
		if err != nil {
			return
		}
	}
}

// rest reads what is in the pipe without waiting for more.
func (t *tap) rest(buf []byte) error {
	if err := t.from.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	raw, err := t.from.SyscallConn()
	if err != nil {
		return err
	}
	var waiting int
	if err := raw.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		return err
	}
	for waiting > 0 {
		n, err := t.from.Read(buf[:min(waiting, len(buf))])
		t.deliver(buf[:n])
		if err != nil {
			return err
		}
		waiting -= n
	}
	return nil
}

func (t *tap) deliver(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(p) > 0 && t.sink != nil {
		t.sink(p)
	}
}
