package provider

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/ring"
)

// command is a program in a sandbox, and what it has printed. This process reads along
// from its start; what was printed is not known to the one after it.
type command struct {
	sb *sandbox

	mu             sync.Mutex
	state          sdk.Command
	stdout, stderr ring.Buffer
	pid            int // of the supervisor
	signals        []int
	// changed is closed when there is something new.
	changed chan struct{}

	// writing is held by who writes to the input.
	writing sync.Mutex
	open    bool // the input; guarded by writing
}

// update changes the command and tells those who wait.
func (c *command) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// snapshot is the command as it is.
func (c *command) snapshot() sdk.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locked()
}

func (c *command) locked() sdk.Command {
	state := c.state
	state.Argv = slices.Clone(state.Argv)
	state.StdoutBytes, state.StderrBytes = c.stdout.Total(), c.stderr.Total()
	return state
}

// run runs the program to its end. started gets nil when it runs, or why it does not.
func (c *command) run(ctx context.Context, job stream.Job, options envd.StartOptions, started chan<- error) {
	write := func(r *ring.Buffer) func([]byte) error {
		return func(b []byte) error {
			c.update(func() { r.Write(b) })
			return nil
		}
	}
	done, err := c.sb.supervise(ctx, job, options, sink{write(&c.stdout), write(&c.stderr)}, func(pid int) {
		c.update(func() { c.pid = pid })
		started <- nil
	})
	switch {
	case err == nil && done != nil:
		err = done.Refusal()
	case err == nil && c.supervisor() == 0:
		err = sdk.Errorf(sdk.CodeUnavailable, "the sandbox could not start the program; it needs python3")
	}
	if done == nil {
		done = &supervise.Done{Exit: 128 + int(unix.SIGKILL)}
	}
	c.update(func() {
		c.state.EndedAt = time.Now()
		c.state.State, c.state.ExitCode = done.Command(c.signals)
	})
	started <- err
}

func (c *command) supervisor() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// read passes on output from the offsets on.
func (c *command) read(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	streams := []struct {
		name   sdk.Stream
		ring   *ring.Buffer
		offset int64
	}{{sdk.Stdout, &c.stdout, req.StdoutOffset}, {sdk.Stderr, &c.stderr, req.StderrOffset}}
	for {
		c.mu.Lock()
		changed, state := c.changed, c.locked()
		c.mu.Unlock()
		some := false
		for i := range streams {
			s := &streams[i]
			c.mu.Lock()
			from, piece := s.ring.Read(s.offset, sdk.MaxOutputChunk)
			c.mu.Unlock()
			if len(piece) == 0 {
				continue
			}
			if err := out(sdk.CommandOutput{Stream: s.name, Offset: from, Data: piece}); err != nil {
				return sdk.Command{}, err
			}
			s.offset, some = from+int64(len(piece)), true
		}
		switch {
		case some:
			continue
		case !req.Follow || state.State != sdk.CommandRunning:
			return state, nil
		}
		select {
		case <-changed:
		case <-c.sb.gone.Done():
			return sdk.Command{}, errNoInstance
		case <-ctx.Done():
			return sdk.Command{}, ctx.Err()
		}
	}
}

// signal sends one by its name.
func (c *command) signal(ctx context.Context, name string) error {
	number := unix.SignalNum(name)
	if number == 0 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "signal", "there is no signal %.30q", name)
	}
	c.mu.Lock()
	running := c.state.State == sdk.CommandRunning
	if running {
		c.signals = append(c.signals, int(number))
	}
	c.mu.Unlock()
	if !running {
		return errEnded
	}
	_, exit, err := c.sb.script(ctx, stream.Signal(c.supervisor(), name))
	if err == nil && exit != 0 {
		return errEnded
	}
	return err
}

var (
	errEnded  = sdk.Errorf(sdk.CodeConflict, "the command has ended")
	errClosed = sdk.Errorf(sdk.CodeConflict, "the input of the command is closed")
)

// inputChunk is how much one message to the input carries.
const inputChunk = 256 << 10

// endOfInput is Ctrl-D.
const endOfInput = "\x04"

func (c *command) write(ctx context.Context, data []byte, end bool) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	state := c.snapshot()
	if !c.open || state.State != sdk.CommandRunning {
		return errClosed
	}
	if state.Terminal && end {
		data = append(slices.Clone(data), endOfInput...)
	}
	if end && !state.Terminal && !c.sb.has(closesInput) {
		return c.sb.errNoEndOfInput()
	}
	pid := c.supervisor()
	for piece := range slices.Chunk(data, inputChunk) {
		err := c.sb.tell(ctx, func(client *envd.Client) error { return client.SendInput(ctx, pid, state.Terminal, piece) })
		if err != nil {
			return c.notWritten(ctx, err)
		}
	}
	if end && !state.Terminal {
		c.open = false
		if err := c.sb.tell(ctx, func(client *envd.Client) error { return client.CloseStdin(ctx, pid) }); err != nil {
			// A program that has ended meanwhile, or has been told so by a try of which
			// the answer was lost, has no open input: as was asked for.
			if err := c.notWritten(ctx, err); !errors.Is(err, errClosed) {
				return err
			}
		}
	}
	return nil
}

// notWritten tells a program that does not read any more from a failure.
func (c *command) notWritten(ctx context.Context, err error) error {
	if code := connectCode(err); code == "not_found" || code == "failed_precondition" || code == "internal" && strings.Contains(err.Error(), "stdin") {
		return errClosed
	}
	return c.sb.explain(ctx, err)
}

var _ sdk.Commands = (*Provider)(nil)

// keptCommands is how many that have ended stay known in a sandbox.
const keptCommands = 32

// StartCommand implements sdk.Commands.
func (p *Provider) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.Command{}, err
	}
	cwd := req.Cwd
	if cwd == "" {
		cwd = remote.Workspace
	}
	c := &command{
		sb: sb, changed: make(chan struct{}), open: req.Stdin || req.Terminal != nil,
		stdout: ring.New(int(req.KeepOutput)), stderr: ring.New(int(req.KeepOutput)),
		state: sdk.Command{
			ID: remote.NewName(), Argv: req.Argv, Cwd: cwd, State: sdk.CommandRunning, StartedAt: time.Now(),
			Stdin: req.Stdin, Terminal: req.Terminal != nil,
		},
	}
	job := stream.Job{Argv: req.Argv, Env: req.Env, Cwd: cwd, Timeout: req.Timeout, Stdin: req.Stdin, Terminal: req.Terminal != nil}
	options := envd.StartOptions{Stdin: req.Stdin}
	if req.Terminal != nil {
		options.Terminal = &envd.Terminal{Cols: req.Terminal.Columns, Rows: req.Terminal.Rows}
		if _, given := req.Env["TERM"]; !given {
			job.Env = map[string]string{"TERM": "xterm-256color"}
			for name, value := range req.Env {
				job.Env[name] = value
			}
		}
	}
	// The command outlives the call; who leaves before it runs does not want it.
	running, stop := context.WithCancel(sb.gone)
	started := make(chan error, 2)
	p.background.Go(func() {
		defer stop()
		c.run(running, job, options, started)
	})
	select {
	case err = <-started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return sdk.Command{}, err
	}
	sb.addCommand(c)
	return c.snapshot(), nil
}

// addCommand makes a command known, and forgets the oldest that have ended.
func (sb *sandbox) addCommand(c *command) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.commands = append(sb.commands, c)
	ended := 0
	for i := len(sb.commands) - 1; i >= 0; i-- {
		if sb.commands[i].snapshot().State == sdk.CommandRunning {
			continue
		}
		if ended++; ended > keptCommands {
			sb.commands = slices.Delete(sb.commands, i, i+1)
		}
	}
}

// ListCommands implements sdk.Commands.
func (p *Provider) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	var all []sdk.Command
	for _, c := range sb.commands {
		all = append(all, c.snapshot())
	}
	return all, nil
}

func (p *Provider) command(ctx context.Context, instanceID, commandID string) (*command, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	for _, c := range sb.commands {
		if c.state.ID == commandID { // which never changes
			return c, nil
		}
	}
	return nil, sdk.FieldErrorf(sdk.CodeNotFound, "command_id", "no such command")
}

// ReadCommand implements sdk.Commands.
func (p *Provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	c, err := p.command(ctx, req.InstanceID, req.CommandID)
	if err != nil {
		return sdk.Command{}, err
	}
	return c.read(ctx, req, out)
}

// WriteCommand implements sdk.Commands.
func (p *Provider) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	c, err := p.command(ctx, instanceID, commandID)
	if err != nil {
		return err
	}
	return c.write(ctx, data, end)
}

// ResizeCommand implements sdk.Commands.
func (p *Provider) ResizeCommand(ctx context.Context, instanceID, commandID string, size sdk.TerminalSize) error {
	c, err := p.command(ctx, instanceID, commandID)
	if err != nil {
		return err
	}
	if state := c.snapshot(); !state.Terminal {
		return sdk.Errorf(sdk.CodeConflict, "the command has no terminal")
	} else if state.State != sdk.CommandRunning {
		return errEnded
	}
	err = c.sb.tell(ctx, func(client *envd.Client) error {
		return client.Resize(ctx, c.supervisor(), envd.Terminal{Cols: size.Columns, Rows: size.Rows})
	})
	if connectCode(err) == "not_found" {
		return errEnded
	}
	return c.sb.explain(ctx, err)
}

// SignalCommand implements sdk.Commands.
func (p *Provider) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	c, err := p.command(ctx, instanceID, commandID)
	if err != nil {
		return err
	}
	return c.signal(ctx, signal)
}
