package local

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Commands = (*Provider)(nil)

// errSignalled is why a command ended that a signal ended.
var errSignalled = errors.New("it was signalled")

// command is a program that outlives the call that started it.
type command struct {
	run   *process
	stdin *os.File // nil when it is closed or was never open

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	state   sdk.Command
	kept    map[sdk.Stream][]byte
	keep    int64
	cause   error
}

// StartCommand implements sdk.Commands. There are no terminals.
func (p *Provider) StartCommand(_ context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	i, err := p.find(req.InstanceID)
	if err != nil {
		return sdk.Command{}, err
	}
	if req.Terminal != nil {
		return sdk.Command{}, sdk.Errorf(sdk.CodeNotSupported, "this provider has no terminals")
	}
	if _, err := exec.LookPath(req.Argv[0]); err != nil {
		return sdk.Command{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "there is no program %q", req.Argv[0])
	}
	c := &command{
		run: i.newProcess(req.Argv, req.Env), changed: make(chan struct{}), keep: req.KeepOutput, kept: map[sdk.Stream][]byte{},
		state: sdk.Command{ID: "c" + newID(), Argv: req.Argv, Cwd: req.Cwd, State: sdk.CommandRunning, StartedAt: time.Now(), Stdin: req.Stdin},
	}
	if path.IsAbs(req.Cwd) {
		c.run.cmd.Dir = req.Cwd
	} else {
		c.run.cmd.Dir = filepath.Join(i.workspace(), req.Cwd)
	}
	if req.Stdin {
		reader, writer, err := os.Pipe()
		if err != nil {
			return sdk.Command{}, err
		}
		c.run.cmd.Stdin, c.stdin = reader, writer
	}
	i.mu.Lock()
	i.commands = append(i.commands, c)
	i.mu.Unlock()
	go c.live(i, req.Timeout)
	return c.describe(), nil
}

// live runs the command to its end.
func (c *command) live(i *instance, timeout time.Duration) {
	ctx, cancel := context.WithCancelCause(i.life)
	defer cancel(nil)
	if timeout > 0 {
		timer := time.AfterFunc(timeout, func() { cancel(errTimeout) })
		defer timer.Stop()
	}
	err := c.run.run(ctx, c.printed(sdk.Stdout), c.printed(sdk.Stderr))
	if stdin, ok := c.run.cmd.Stdin.(*os.File); ok {
		stdin.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.EndedAt = time.Now()
	reason := c.run.endedBy()
	switch {
	case err != nil:
		c.state.State, c.state.ExitCode = sdk.CommandFailed, 127
	case errors.Is(reason, errTimeout):
		c.state.State, c.state.ExitCode = sdk.CommandTimeout, c.run.exitCode()
	case reason != nil, c.cause != nil && c.run.exitCode() > 128:
		c.state.State, c.state.ExitCode = sdk.CommandCancelled, c.run.exitCode()
	case c.run.exitCode() == 0:
		c.state.State = sdk.CommandSucceeded
	default:
		c.state.State, c.state.ExitCode = sdk.CommandFailed, c.run.exitCode()
	}
	c.notify()
}

// notify wakes the readers. The caller holds the lock.
func (c *command) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// printed keeps the latest of a stream.
func (c *command) printed(stream sdk.Stream) func([]byte) error {
	total := &c.state.StdoutBytes
	if stream == sdk.Stderr {
		total = &c.state.StderrBytes
	}
	return func(b []byte) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		*total += int64(len(b))
		kept := append(c.kept[stream], b...)
		c.kept[stream] = kept[max(0, int64(len(kept))-c.keep):]
		c.notify()
		return nil
	}
}

func (c *command) describe() sdk.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (p *Provider) findCommand(instanceID, commandID string) (*command, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.commands {
		if c.state.ID == commandID {
			return c, nil
		}
	}
	return nil, sdk.Errorf(sdk.CodeNotFound, "no such command")
}

// ListCommands implements sdk.Commands.
func (p *Provider) ListCommands(_ context.Context, instanceID string) ([]sdk.Command, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []sdk.Command
	for _, c := range i.commands {
		list = append(list, c.describe())
	}
	return list, nil
}

// ReadCommand implements sdk.Commands.
func (p *Provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	c, err := p.findCommand(req.InstanceID, req.CommandID)
	if err != nil {
		return sdk.Command{}, err
	}
	next := map[sdk.Stream]int64{sdk.Stdout: req.StdoutOffset, sdk.Stderr: req.StderrOffset}
	for {
		state, changed, pieces := c.since(next)
		for _, piece := range pieces {
			for len(piece.Data) > 0 {
				n := min(len(piece.Data), sdk.MaxOutputChunk)
				if err := out(sdk.CommandOutput{Stream: piece.Stream, Offset: piece.Offset, Data: piece.Data[:n]}); err != nil {
					return sdk.Command{}, err
				}
				piece.Offset, piece.Data = piece.Offset+int64(n), piece.Data[n:]
			}
			next[piece.Stream] = piece.Offset
		}
		if !req.Follow || state.State != sdk.CommandRunning {
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sdk.Command{}, ctx.Err()
		}
	}
}

// since returns what was printed from the offsets on, the state that goes with it,
// and what is closed when there is more.
func (c *command) since(next map[sdk.Stream]int64) (sdk.Command, <-chan struct{}, []sdk.CommandOutput) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pieces []sdk.CommandOutput
	for stream, total := range map[sdk.Stream]int64{sdk.Stdout: c.state.StdoutBytes, sdk.Stderr: c.state.StderrBytes} {
		kept := c.kept[stream]
		offset := max(next[stream], total-int64(len(kept)))
		if offset < total {
			data := kept[int64(len(kept))-(total-offset):]
			pieces = append(pieces, sdk.CommandOutput{Stream: stream, Offset: offset, Data: append([]byte(nil), data...)})
		}
	}
	return c.state, c.changed, pieces
}

// WriteCommand implements sdk.Commands.
func (p *Provider) WriteCommand(_ context.Context, instanceID, commandID string, data []byte, end bool) error {
	c, err := p.findCommand(instanceID, commandID)
	if err != nil {
		return err
	}
	if c.stdin == nil {
		return sdk.Errorf(sdk.CodeConflict, "standard input is closed or was never open")
	}
	if _, err := c.stdin.Write(data); err != nil {
		return sdk.Errorf(sdk.CodeConflict, "standard input is closed")
	}
	if end {
		err = c.stdin.Close()
	}
	return err
}

// ResizeCommand implements sdk.Commands.
func (p *Provider) ResizeCommand(_ context.Context, instanceID, commandID string, _ sdk.TerminalSize) error {
	if _, err := p.findCommand(instanceID, commandID); err != nil {
		return err
	}
	return sdk.Errorf(sdk.CodeConflict, "the command has no terminal")
}

// SignalCommand implements sdk.Commands.
func (p *Provider) SignalCommand(_ context.Context, instanceID, commandID, signal string) error {
	c, err := p.findCommand(instanceID, commandID)
	if err != nil {
		return err
	}
	number := unix.SignalNum(strings.ToUpper(signal))
	if number == 0 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "signal", "is not the name of a signal")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.State != sdk.CommandRunning {
		return sdk.Errorf(sdk.CodeConflict, "the command has ended")
	}
	c.cause = errSignalled
	if number == syscall.SIGKILL {
		go c.run.end(errSignalled)
		return nil
	}
	signalAll(marked(c.run.mark), number)
	return nil
}
