package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/forkserver"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
)

// isolated is a program with its descendants: one that was started, or one that was
// forked.
type isolated interface {
	memory.Program
	// Started returns when the program runs, or why it cannot.
	Started(ctx context.Context) error
	// Exit returns how the program ended, once it has. ok is false if it was killed.
	Exit() (exit isolation.Exit, ok bool)
	// Interrupt sends SIGINT to what runs in the foreground.
	Interrupt()
	// Wait returns when every process of it has gone.
	Wait()
}

var (
	_ isolated = (*isolation.Process)(nil)
	_ isolated = (*isolation.Child)(nil)
)

// process is an interpreter. What it runs arrives later, so it can be started
// ahead.
type process struct {
	isolated
	request *os.File // its descriptor 3: what to run; ends after it
	stdout  *pipe.Reader
	stderr  *pipe.Reader
	result  *pipe.Reader // its descriptor 4: a byte when ready, then what package frames reads
	// leaves is a file that the interpreter may write, and that is removed with it;
	// "" for none. It cannot do that itself if it is killed.
	leaves string
}

// descriptors are an interpreter's ends of its pipes.
type descriptors = forkserver.Streams

// startProcess starts an interpreter. What it shall run is written to request.
// The caller must end it with wait.
func startProcess(s isolation.Spec) (*process, error) {
	return makeProcess(func(d descriptors) (isolated, error) {
		file := func(fd int) *os.File { return os.NewFile(uintptr(fd), "|") }
		theirs := isolation.Streams{Stdout: file(d.Stdout), Stderr: file(d.Stderr), Extra: []*os.File{file(d.Request), file(d.Result)}}
		defer func() {
			for _, f := range append(theirs.Extra, theirs.Stdout, theirs.Stderr) {
				_ = f.Close()
			}
		}()
		if isolation.MayStartChild() {
			return isolation.StartChild(s, theirs)
		}
		return isolation.Start(s, theirs)
	})
}

// forkProcess has an interpreter forked, as startProcess has one started.
func forkProcess(server *forkserver.Server) (*process, error) {
	return makeProcess(func(d descriptors) (isolated, error) {
		defer closeAll(d.Stdout, d.Stderr, d.Request, d.Result)
		return server.Fork(d)
	})
}

// makeProcess makes an interpreter of what begin makes, which closes the descriptors.
func makeProcess(begin func(descriptors) (isolated, error)) (*process, error) {
	p := &process{}
	var theirs descriptors
	var made []int
	var err error
	for _, output := range []struct {
		ours   **pipe.Reader
		theirs *int
	}{{&p.stdout, &theirs.Stdout}, {&p.stderr, &theirs.Stderr}, {&p.result, &theirs.Result}} {
		var r *os.File
		if r, *output.theirs, err = halfBlockingPipe(0); err != nil {
			break
		}
		made = append(made, *output.theirs)
		*output.ours = pipe.NewReader(r)
	}
	if err == nil {
		p.request, theirs.Request, err = halfBlockingPipe(1)
	}
	if err != nil {
		closeAll(made...)
		p.closePipes()
		return nil, err
	}
	if p.isolated, err = begin(theirs); err != nil {
		p.closePipes()
		return nil, err
	}
	return p, nil
}

// halfBlockingPipe makes a pipe of which one end, 0 to read or 1 to write, is ours and
// has deadlines. The other, which a program gets, blocks: os.Pipe would make both
// alike, and undo it for the one, with twice the system calls.
func halfBlockingPipe(end int) (ours *os.File, theirs int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, os.NewSyscallError("pipe2", err)
	}
	if _, err := unix.FcntlInt(uintptr(fds[end]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		closeAll(fds[:]...)
		return nil, 0, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[end]), "|"), fds[1-end], nil
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// waitReady returns when the interpreter says that it waits for a request.
func (p *process) waitReady() error {
	var b [1]byte
	if _, err := io.ReadFull(p.result, b[:]); err != nil {
		complaint, _ := io.ReadAll(io.LimitReader(p.stderr, 4<<10))
		return fmt.Errorf("interpreter ended before it was ready: %s", complaint)
	}
	return nil
}

// waitGone returns when every process of the interpreter has gone, and ends its
// pipes: whoever was given the other ends may hold them for ever. What they hold
// can still be read. It may be called twice.
func (p *process) waitGone() {
	p.Wait()
	for _, r := range []*pipe.Reader{p.stdout, p.stderr, p.result} {
		r.End()
	}
	_ = p.request.SetWriteDeadline(time.Unix(1, 0)) // it may be closed
}

// wait returns when every process of the interpreter has gone, and removes what is
// left. It may be called twice.
func (p *process) wait() {
	p.Wait()
	if p.leaves != "" {
		_ = os.Remove(p.leaves) // most code leaves none
	}
	p.closePipes()
}

func (p *process) closePipes() {
	if p.request != nil {
		_ = p.request.Close()
	}
	for _, r := range []*pipe.Reader{p.stdout, p.stderr, p.result} {
		if r != nil {
			_ = r.Close()
		}
	}
}
