package localcommands

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/ring"
	"golang.org/x/sys/unix"
)

// streams are those of a command, in the order of its outputs.
var streams = [2]sdk.Stream{sdk.Stdout, sdk.Stderr}

// command is a program that is being started, runs or has run.
type command struct {
	process  Process         // once it has begun
	from     [2]*pipe.Reader // our ends of the output pipes; the second is nil for a terminal
	input    *pipe.Writer    // nil if it was not asked for
	terminal *os.File        // what from[0] reads; nil without one
	done     chan struct{}   // closed when nothing of it is left

	mu      sync.Mutex
	state   sdk.Command // its ID, Argv, Cwd, Stdin and Terminal never change; State is empty before it has begun
	output  [2]ring.Buffer
	changed chan struct{} // closed at the next change; nil if nobody waits
	sent    map[syscall.Signal]bool
	// What it was killed for.
	timedOut, instanceEnded bool
}

func newCommand(id string, req sdk.CommandRequest, most int64) *command {
	if most <= 0 {
		most = math.MaxInt32
	}
	keep := int(min(max(req.KeepOutput, 1), most))
	return &command{
		done: make(chan struct{}), output: [2]ring.Buffer{ring.New(keep), ring.New(keep)}, sent: map[syscall.Signal]bool{},
		state: sdk.Command{
			ID: id, Argv: slices.Clone(req.Argv), Cwd: directory(req.Cwd),
			Stdin: req.Stdin || req.Terminal != nil, Terminal: req.Terminal != nil,
		},
	}
}

// theirEnds are the program's ends of the pipes.
type theirEnds struct{ stdin, stdout, stderr *os.File }

func (e theirEnds) close() {
	for _, f := range []*os.File{e.stdin, e.stdout, e.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// open makes the pipes of the command, unless it has a terminal. What was made is to be
// closed after an error too.
func (c *command) open(req sdk.CommandRequest) (theirs theirEnds, err error) {
	if req.Terminal != nil {
		return theirs, nil
	}
	var failed [3]error
	for i, end := range []**os.File{&theirs.stdout, &theirs.stderr} {
		var ours *os.File
		if ours, *end, failed[i] = os.Pipe(); failed[i] == nil {
			c.from[i] = pipe.NewReader(ours)
		}
	}
	if req.Stdin {
		var ours *os.File
		if theirs.stdin, ours, failed[2] = os.Pipe(); failed[2] == nil {
			c.input = pipe.NewWriter(ours, false)
		}
	}
	return theirs, errors.Join(failed[:]...)
}

// takeTerminal takes our end of the terminal of a program that was started.
func (c *command) takeTerminal(process Process) error {
	has, ok := process.(TerminalProcess)
	if !ok {
		return sdk.Errorf(sdk.CodeInternal, "the program was started without its terminal")
	}
	ours, err := has.Terminal()
	if err == nil {
		c.terminal, c.from[0], c.input = ours, pipe.NewReader(ours), pipe.NewWriter(ours, true)
	}
	return err
}

// resize tells the terminal its size.
func (c *command) resize(size sdk.TerminalSize) error {
	const most = math.MaxUint16
	window := unix.Winsize{Row: uint16(min(size.Rows, most)), Col: uint16(min(size.Columns, most))}
	raw, err := c.terminal.SyscallConn()
	var failed error
	if err == nil {
		err = raw.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &window) })
	}
	if err != nil || failed != nil {
		return errEnded()
	}
	return nil
}

func errEnded() error { return sdk.Errorf(sdk.CodeConflict, "the command has ended") }

// close closes our ends.
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

// begin takes over a process that was started.
func (c *command) begin(process Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process, c.state.State, c.state.StartedAt = process, sdk.CommandRunning, time.Now()
}

// live sees a command to its end.
func (c *Commands) live(in *instance, one *command, timeout time.Duration) {
	defer close(one.done)
	stopWatching := context.AfterFunc(in.life, func() { one.kill(&one.instanceEnded) })
	stopTimer := func() bool { return false }
	if timeout > 0 {
		stopTimer = time.AfterFunc(timeout, func() { one.kill(&one.timedOut) }).Stop
	}
	var reading sync.WaitGroup
	for i, f := range one.from {
		if f != nil {
			reading.Go(func() { one.read(i) })
		}
	}
	exit, err := one.process.Wait()
	stopTimer()
	stopWatching()
	for _, f := range one.from {
		if f != nil {
			f.End()
		}
	}
	reading.Wait()
	one.close()
	one.end(exit, err)
	c.forget(in)
}

// kill kills a command that runs, and remembers what for.
func (c *command) kill(reason *bool) {
	c.mu.Lock()
	running := c.state.State == sdk.CommandRunning
	*reason = true
	c.mu.Unlock()
	if running {
		c.process.Kill()
	}
}

// read takes what the command prints until its end, whether anybody wants it or not.
func (c *command) read(i int) {
	buf := make([]byte, 16<<10)
	for {
		n, err := c.from[i].Read(buf)
		if n > 0 {
			c.mu.Lock()
			c.output[i].Write(buf[:n])
			c.wake()
			c.mu.Unlock()
		}
		if err != nil {
			return // for a terminal that is EIO
		}
	}
}

// wake tells those that wait for a change. The lock is held.
func (c *command) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// signal sends a signal to every process of the command.
func (c *command) signal(number syscall.Signal) error {
	c.mu.Lock()
	running := c.state.State == sdk.CommandRunning
	if running {
		c.sent[number] = true // who ended the command is asked later
	}
	c.mu.Unlock()
	switch {
	case running && number == syscall.SIGKILL:
		c.process.Kill()
		return nil
	case running && c.process.Signal(number) == nil:
		return nil
	default:
		return errEnded()
	}
}

// end settles what became of the command. One that ended well at the last moment was not
// killed. The code of one that was killed is whatever its program made of it: the
// processes do not all die at once.
func (c *command) end(exit Exit, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		exit = Exit{Code: 128 + int(syscall.SIGKILL)}
	}
	switch {
	case exit.OutOfMemory:
		c.state.State = sdk.CommandOutOfMemory
	case exit.Code == 0:
		c.state.State = sdk.CommandSucceeded
	case c.sent[syscall.SIGKILL], c.sent[syscall.Signal(exit.Code-128)], c.instanceEnded && !c.timedOut:
		c.state.State = sdk.CommandCancelled
	case c.timedOut:
		c.state.State = sdk.CommandTimeout
	default:
		c.state.State = sdk.CommandFailed
	}
	c.state.ExitCode, c.state.EndedAt = exit.Code, time.Now()
	c.wake()
}

func (c *command) hasBegun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.State != ""
}

func (c *command) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.State != "" && c.state.State != sdk.CommandRunning
}

// held is how many bytes its output takes.
func (c *command) held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output[0].Held() + c.output[1].Held()
}

func (c *command) forgetOutput() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.output[0].Forget()
	c.output[1].Forget()
}

func (c *command) describe() sdk.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.described()
}

// described is describe for those that have the lock.
func (c *command) described() sdk.Command {
	state := c.state
	state.StdoutBytes, state.StderrBytes = c.output[0].Total(), c.output[1].Total()
	return state
}

// reader passes on the output of a command from some place on.
type reader struct {
	command *command
	at      [2]int64 // the next byte of each stream
	// asItWas is the command when reading began, with the place where to end. Nil to
	// follow the command.
	asItWas *sdk.Command
}

func (c *command) reader(req sdk.ReadCommandRequest) *reader {
	r := &reader{command: c, at: [2]int64{max(req.StdoutOffset, 0), max(req.StderrOffset, 0)}}
	if !req.Follow {
		r.asItWas = new(c.describe())
	}
	return r
}

// next returns the next pieces of output, at most one of each stream. If there are none
// now, changed is closed when there may be; nil means that no more come, and that state
// is the command that goes with what was passed on.
func (r *reader) next() (pieces []sdk.CommandOutput, changed <-chan struct{}, state sdk.Command) {
	c := r.command
	c.mu.Lock()
	defer c.mu.Unlock()
	state = c.described()
	if r.asItWas != nil {
		state = *r.asItWas
	}
	for i, until := range []int64{state.StdoutBytes, state.StderrBytes} {
		if r.at[i] >= until {
			continue
		}
		offset, data := c.output[i].Read(r.at[i], min(until-r.at[i], maxChunk))
		data = data[:min(max(until-offset, 0), int64(len(data)))] // what comes later was not meant
		r.at[i] = offset + int64(len(data))
		if len(data) > 0 {
			pieces = append(pieces, sdk.CommandOutput{Stream: streams[i], Offset: offset, Data: data})
		}
	}
	if len(pieces) > 0 || r.asItWas != nil || state.State != sdk.CommandRunning {
		return pieces, nil, state
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return nil, c.changed, state
}
