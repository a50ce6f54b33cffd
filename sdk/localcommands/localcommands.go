package localcommands

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
)

// Options of Commands.
type Options struct {
	// Check returns nil for an instance that is there, and for another an *sdk.Error
	// with CodeNotFound.
	Check func(instanceID string) error
	// Start returns when the program runs. It obeys ctx until then; the program does not
	// end with ctx. For a program that is not there it returns the error of
	// exec.LookPath, or an *sdk.Error with CodeInvalidRequest and the field "argv"; for a
	// directory that is not there one with the field "cwd".
	Start func(ctx context.Context, instanceID string, program Program) (Process, error)
	// MaxRunning is how many commands may run in an instance at once: 32 unless given.
	MaxRunning int
	// MaxFollowers is how many readers may follow commands at once; 0 is any number.
	MaxFollowers int
	// MaxKept bounds, in bytes, what is kept of each output of a command, whatever is asked
	// for; 0 is no bound.
	MaxKept int64
	// NewID names a command. It is random unless given, so that no name comes again when
	// the plugin is started anew.
	NewID func() string
	// Terminals says that commands may have one: Start returns a TerminalProcess for a
	// Program with a Terminal.
	Terminals bool
}

// Program says what to start.
type Program struct {
	// Argv is the program and its arguments. There is no NUL in them.
	Argv []string
	// Env is added to the environment of the instance. Names and values are fit for it.
	Env map[string]string
	// Dir is where it starts: an absolute path, as code sees it.
	Dir string
	// Terminal is the size of the terminal that the program gets in place of the three
	// files; nil for a program without one.
	Terminal *sdk.TerminalSize
	// Stdin, Stdout and Stderr are for the program itself. The caller of Start closes
	// them; nothing else that is started may inherit them. Stdin is nil if it is empty.
	Stdin, Stdout, Stderr *os.File
}

// Process is a program that runs, with all that it has started. Its methods are called
// from any goroutine, Wait from one and once.
type Process interface {
	// Signal sends a signal to every process. An error says that it has ended.
	Signal(signal syscall.Signal) error
	// Kill begins to end every process. It is called at any time, also after the end.
	Kill()
	// Wait returns when no process is left. An error says that nobody knows how the
	// program has ended.
	Wait() (Exit, error)
}

// TerminalProcess is a Process whose program has a terminal.
type TerminalProcess interface {
	Process
	// Terminal returns our end of it, once, which the caller closes.
	Terminal() (*os.File, error)
}

// Exit is how a program has ended.
type Exit struct {
	// Code is the exit code; 128 plus the signal when one ended it.
	Code int
	// OutOfMemory says that it was killed at the memory limit.
	OutOfMemory bool
}

// Bounds on what is kept in memory.
const (
	// defaultRunning is Options.MaxRunning unless given.
	defaultRunning = 32
	// maxEnded is how many ended commands of an instance stay known. When all of them hold
	// more than maxEndedOutput, the output of old ones is forgotten, but that of the last.
	maxEnded       = 32
	maxEndedOutput = 16 << 20
	// maxArgv bounds a program's arguments together, in bytes: lists show them.
	maxArgv = 128 << 10
	// maxChunk is the most bytes of output that are passed on at once.
	maxChunk = 32 << 10
)

// Commands implements sdk.Commands.
type Commands struct {
	options Options

	mu        sync.Mutex
	instances map[string]*instance // those that have commands
	followers int
}

var _ sdk.Commands = (*Commands)(nil)

// New returns the commands of the instances that options know. It starts nothing.
func New(options Options) *Commands {
	if options.MaxRunning <= 0 {
		options.MaxRunning = defaultRunning
	}
	if options.NewID == nil {
		options.NewID = func() string { return "c" + strings.ToLower(rand.Text()) }
	}
	return &Commands{options: options, instances: map[string]*instance{}}
}

// StartCommand implements sdk.Commands.
func (c *Commands) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	started := newCommand(c.options.NewID(), req, c.options.MaxKept)
	// In this order: EndCommands finds the command, or the command no instance.
	in, err := c.reserve(req.InstanceID, started)
	if err != nil {
		return sdk.Command{}, err
	}
	if err = c.options.Check(req.InstanceID); err == nil {
		err = c.check(req)
	}
	if err == nil {
		err = c.start(ctx, in, started, req)
	}
	if err != nil {
		c.abandon(in, started)
		return sdk.Command{}, err
	}
	go c.live(in, started, req.Timeout)
	return started.describe(), nil
}

// check finds what no program can be started with.
func (c *Commands) check(req sdk.CommandRequest) error {
	size := 0
	for _, argument := range req.Argv {
		size += len(argument) + 1
	}
	switch {
	case req.Terminal != nil && !c.options.Terminals:
		return sdk.Errorf(sdk.CodeNotSupported, "this provider has no terminals")
	case len(req.Argv) == 0 || req.Argv[0] == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "must name a program")
	case slices.ContainsFunc(req.Argv, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "holds a NUL character, which no argument can")
	case size > maxArgv:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "is longer than %d bytes; put it into a file", maxArgv)
	case strings.ContainsRune(req.Cwd, 0):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "holds a NUL character, which no path can")
	}
	for name, value := range req.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "holds a name or value that no environment can")
		}
	}
	return nil
}

// workspace is where relative directories begin, as code sees it.
const workspace = "/workspace"

// directory is where a command starts.
func directory(cwd string) string {
	if path.IsAbs(cwd) {
		return cwd
	}
	return path.Join(workspace, cwd)
}

// environment is what a command adds to that of its instance.
func environment(req sdk.CommandRequest) map[string]string {
	if req.Terminal == nil || req.Env["TERM"] != "" {
		return req.Env
	}
	env := map[string]string{}
	maps.Copy(env, req.Env)
	env["TERM"] = "xterm-256color"
	return env
}

// start starts the program of a command, unless the instance or ctx ends before.
func (c *Commands) start(ctx context.Context, in *instance, started *command, req sdk.CommandRequest) error {
	theirs, err := started.open(req)
	defer theirs.close()
	if err != nil {
		return sdk.Errorf(sdk.CodeInternal, "start a command: %w", err)
	}
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(in.life, cancel)()
	process, err := c.options.Start(starting, in.id, Program{
		Argv: req.Argv, Env: environment(req), Dir: started.state.Cwd,
		Terminal: req.Terminal, Stdin: theirs.stdin, Stdout: theirs.stdout, Stderr: theirs.stderr,
	})
	if err == nil {
		if err = starting.Err(); err == nil && req.Terminal != nil {
			err = started.takeTerminal(process)
		}
		if err == nil {
			started.begin(process)
			return nil
		}
		process.Kill()
		_, _ = process.Wait() // nobody knows of it
	}
	switch unknown, _ := errors.AsType[*exec.Error](err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case in.life.Err() != nil:
		return errEndedInstance()
	case unknown != nil:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "there is no program %q", req.Argv[0])
	default:
		return err
	}
}

// find returns a command that was started.
func (c *Commands) find(instanceID, commandID string) (*command, error) {
	if err := c.options.Check(instanceID); err != nil {
		return nil, err
	}
	for _, known := range c.known(instanceID) {
		if known.state.ID == commandID {
			return known, nil
		}
	}
	return nil, sdk.Errorf(sdk.CodeNotFound, "no such command")
}

// ListCommands implements sdk.Commands, in the order of their start.
func (c *Commands) ListCommands(_ context.Context, instanceID string) ([]sdk.Command, error) {
	if err := c.options.Check(instanceID); err != nil {
		return nil, err
	}
	var list []sdk.Command
	for _, known := range c.known(instanceID) {
		list = append(list, known.describe())
	}
	return list, nil
}

// ReadCommand implements sdk.Commands.
func (c *Commands) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	read, err := c.find(req.InstanceID, req.CommandID)
	if err != nil {
		return sdk.Command{}, err
	}
	if req.Follow {
		leave, err := c.follow()
		if err != nil {
			return sdk.Command{}, err
		}
		defer leave()
	}
	r := read.reader(req)
	for {
		pieces, changed, state := r.next()
		for _, piece := range pieces {
			if err := out(piece); err != nil {
				return sdk.Command{}, err
			}
		}
		switch {
		case ctx.Err() != nil:
			return sdk.Command{}, ctx.Err()
		case len(pieces) > 0:
			continue
		case changed == nil:
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sdk.Command{}, ctx.Err()
		}
	}
}

// follow counts a reader that follows a command, until it leaves.
func (c *Commands) follow() (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := c.options.MaxFollowers; most > 0 && c.followers >= most {
		return nil, sdk.Errorf(sdk.CodeQuotaExceeded, "%d readers follow commands, which is the most", most)
	}
	c.followers++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.followers--
	}, nil
}

// WriteCommand implements sdk.Commands.
func (c *Commands) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	written, err := c.find(instanceID, commandID)
	if err != nil {
		return err
	}
	if written.input == nil {
		return sdk.Errorf(sdk.CodeConflict, "the command was started without standard input")
	}
	err = written.input.Write(ctx, data, end)
	if errors.Is(err, pipe.ErrClosed) {
		return sdk.Errorf(sdk.CodeConflict, "the command's standard input is closed")
	}
	return err
}

// ResizeCommand implements sdk.Commands. The programs of the terminal get SIGWINCH.
func (c *Commands) ResizeCommand(_ context.Context, instanceID, commandID string, size sdk.TerminalSize) error {
	resized, err := c.find(instanceID, commandID)
	if err != nil {
		return err
	}
	if resized.terminal == nil {
		return sdk.Errorf(sdk.CodeConflict, "the command has no terminal")
	}
	return resized.resize(size)
}

// SignalCommand implements sdk.Commands.
func (c *Commands) SignalCommand(_ context.Context, instanceID, commandID, signal string) error {
	signalled, err := c.find(instanceID, commandID)
	if err != nil {
		return err
	}
	number := unix.SignalNum(signal)
	if number == 0 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "signal", "must be the name of a signal, such as SIGTERM")
	}
	return signalled.signal(number)
}
