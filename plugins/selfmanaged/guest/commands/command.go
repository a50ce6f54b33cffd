package commands

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/ring"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// The states of a command, as the SDK names them.
const (
	stateRunning     = "running"
	stateSucceeded   = "succeeded"
	stateFailed      = "failed"
	stateTimeout     = "timeout"
	stateOutOfMemory = "out_of_memory"
	stateCancelled   = "cancelled"
)

// The output streams: their place in a command and their names.
const (
	stdout = iota
	stderr
)

var streamNames = [2]string{"stdout", "stderr"}

// command is a program that runs or has run.
type command struct {
	id        string
	argv      []string
	cwd       string
	startedAt time.Time
	process   *isolation.Process
	// from are our ends of the output pipes; the second is nil for a terminal.
	from     [2]*pipe.Reader
	terminal *os.File     // what from[0] reads, nil without one
	input    *pipe.Writer // nil without one

	mu       sync.Mutex
	output   [2]ring.Buffer
	changed  chan struct{} // closed at the next change; nil if nobody waits
	sent     map[syscall.Signal]bool
	timedOut bool
	state    string
	exitCode int
	endedAt  time.Time
}

// theirStreams are the program's ends.
type theirStreams struct{ isolation.Streams }

func (s theirStreams) close() {
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// open makes the pipes of a command, unless it has a terminal.
func (c *command) open(req *providerv1.StartCommandRequest) (theirs theirStreams, err error) {
	if req.GetTerminal() != nil {
		return theirs, nil
	}
	var err1, err2, err3 error
	c.from[stdout], theirs.Stdout, err1 = openPipe()
	c.from[stderr], theirs.Stderr, err2 = openPipe()
	if req.GetStdin() {
		var ours *os.File
		if theirs.Stdin, ours, err3 = os.Pipe(); err3 == nil {
			c.input = pipe.NewWriter(ours, false)
		}
	}
	return theirs, errors.Join(err1, err2, err3)
}

// openPipe makes a pipe for output. Both ends are nil if it fails.
func openPipe() (ours *pipe.Reader, theirs *os.File, err error) {
	read, theirs, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return pipe.NewReader(read), theirs, nil
}

// takeTerminal takes our end of the terminal of a command that was started.
func (c *command) takeTerminal() error {
	ours, err := c.process.Terminal()
	if err == nil {
		c.terminal, c.from[stdout], c.input = ours, pipe.NewReader(ours), pipe.NewWriter(ours, true)
	}
	return err
}

func (c *command) close() {
	for _, f := range c.from {
		if f != nil {
			_ = f.Close()
		}
	}
	if c.input != nil {
		c.input.Close()
	}
}

// run returns when the command and all that it started are gone, and everything
// that they printed was read.
func (c *command) run(guard *memory.Guard, timeout time.Duration) {
	guarded := guard.Watch(c.process)
	if timeout > 0 {
		defer time.AfterFunc(timeout, c.expire).Stop()
	}
	var reading sync.WaitGroup
	for i, f := range c.from {
		if f != nil {
			reading.Go(func() { c.read(f, &c.output[i]) })
		}
	}
	exit, ok := c.process.Exit()
	c.process.Kill() // for what it left running; init is about to end too
	c.process.Wait()
	for _, f := range c.from {
		if f != nil {
			f.End()
		}
	}
	reading.Wait()
	guarded.Release()
	c.close()
	c.end(exit, ok, guarded.Killed())
}

func (c *command) expire() {
	c.mu.Lock()
	c.timedOut = true
	c.mu.Unlock()
	c.process.Kill()
}

// read takes what the program prints until its end of the pipe is closed.
func (c *command) read(from io.Reader, into *ring.Buffer) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		c.print(into, buf[:n])
		if err != nil {
			return // for a terminal that is EIO
		}
	}
}

func (c *command) print(into *ring.Buffer, p []byte) {
	if len(p) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	into.Write(p)
	c.wake()
}

// wake tells those that wait for a change. c.mu is held.
func (c *command) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// end settles what became of the command. ok says that it ended by itself or by
// a signal, and not with its init.
func (c *command) end(exit isolation.Exit, ok, outOfMemory bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ok && exit.Code == 0:
		c.state = stateSucceeded
	case ok && exit.Signal != 0 && c.sent[syscall.Signal(exit.Signal)]:
		c.state = stateCancelled
	case ok:
		c.state = stateFailed
	case outOfMemory:
		c.state = stateOutOfMemory
	case c.timedOut:
		c.state = stateTimeout
	case c.sent[unix.SIGKILL]:
		c.state = stateCancelled
	default:
		c.state = stateFailed
	}
	if c.exitCode = exit.Code; !ok {
		c.exitCode = 128 + int(unix.SIGKILL)
	}
	c.endedAt = time.Now()
	c.wake()
}

// signal sends a signal to every process of the command.
func (c *command) signal(signal syscall.Signal) error {
	c.mu.Lock()
	if c.state != stateRunning {
		c.mu.Unlock()
		return errEnded()
	}
	c.remember(signal)
	c.mu.Unlock()
	if err := c.process.Signal(signal); err != nil {
		return errEnded() // init has gone, and the rest is about to
	}
	return nil
}

// remember a signal, to know later who ended the command. c.mu is held.
func (c *command) remember(signal syscall.Signal) {
	if c.sent == nil {
		c.sent = map[syscall.Signal]bool{}
	}
	c.sent[signal] = true
}

func errEnded() error { return sdk.Errorf(sdk.CodeConflict, "the command has ended") }

func (c *command) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state != stateRunning
}

// kept is how many bytes of output are held.
func (c *command) kept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output[stdout].Held() + c.output[stderr].Held()
}

func (c *command) forgetOutput() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.output[stdout].Forget()
	c.output[stderr].Forget()
}

func (c *command) toWire() *providerv1.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.describe()
}

// describe is toWire with mu held.
func (c *command) describe() *providerv1.Command {
	wc := &providerv1.Command{
		Id: c.id, Argv: c.argv, Cwd: c.cwd, State: c.state, ExitCode: int32(c.exitCode), StartedAt: timestamppb.New(c.startedAt),
		StdoutBytes: c.output[stdout].Total(), StderrBytes: c.output[stderr].Total(),
		Stdin: c.input != nil, Terminal: c.terminal != nil,
	}
	if !c.endedAt.IsZero() {
		wc.EndedAt = timestamppb.New(c.endedAt)
	}
	return wc
}

func windowSize(t *providerv1.TerminalSize) unix.Winsize {
	const most = 1<<16 - 1
	return unix.Winsize{Row: uint16(min(t.GetRows(), most)), Col: uint16(min(t.GetColumns(), most))}
}
