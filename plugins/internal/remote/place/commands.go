package place

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// Commands implements sdk.Commands; a provider embeds it. All that is known of a command
// lies in its sandbox.
type Commands struct {
	service Service
	logger  hclog.Logger
	writing keylock.Locks[string]
}

var _ sdk.Commands = (*Commands)(nil)

// NewCommands makes Commands.
func NewCommands(service Service, logger hclog.Logger) *Commands {
	return &Commands{service: service, logger: logger}
}

var (
	errNoCommand = sdk.FieldErrorf(sdk.CodeNotFound, "command_id", "no such command")
	errEnded     = sdk.Errorf(sdk.CodeConflict, "the command has ended")
	errClosed    = sdk.Errorf(sdk.CodeConflict, "the input of the command is closed")
)

// commandID is the form of remote.NewName. Nothing else gets into a path in the sandbox.
var commandID = regexp.MustCompile(`^[0-9a-f]{24}$`)

// endOfInput is Ctrl-D.
const endOfInput = "\x04"

// command finds the sandbox of a command, and asks it something.
func command[T any](ctx context.Context, c *Commands, instanceID, id string, call func(context.Context, Box) (T, error)) (T, error) {
	var none T
	box, err := c.service.Box(ctx, instanceID)
	if err != nil {
		return none, err
	}
	if !commandID.MatchString(id) {
		return none, errNoCommand
	}
	value, err := Ask(ctx, c.service, func(ctx context.Context) (T, error) { return call(ctx, box) })
	if errors.Is(err, ErrUnknown) {
		err = errNoCommand
	}
	return value, c.service.Explain(ctx, err, "ask for a command")
}

// StartCommand implements sdk.Commands.
func (c *Commands) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	box, err := c.service.Box(ctx, req.InstanceID)
	if err != nil {
		return sdk.Command{}, err
	}
	run := Program{
		ID: remote.NewName(), Argv: req.Argv, Dir: box.Absolute(req.Cwd), Env: box.Environment(req.Env), Timeout: req.Timeout, Grace: sdk.InterruptGrace,
		Keep: req.KeepOutput, Stdin: req.Stdin || req.Terminal != nil,
	}
	if req.Terminal != nil {
		run.Terminal = &Size{Rows: req.Terminal.Rows, Columns: req.Terminal.Columns}
		run.Env = box.Environment(map[string]string{"TERM": "xterm-256color"}, box.Env, req.Env)
	}
	// The same name again does not start it twice.
	state, err := Ask(ctx, c.service, func(ctx context.Context) (State, error) { return Command(ctx, box, run) })
	if err != nil {
		stop(ctx, c.service, c.logger, box, run.ID)
		return sdk.Command{}, c.service.Explain(ctx, err, "start a command")
	}
	if state.Done != nil && state.Done.Error != "" {
		return sdk.Command{}, state.Done.Refusal()
	}
	return commandOf(box, state), nil
}

// commandOf is a command in the broker's words.
func commandOf(box Box, s State) sdk.Command {
	c := sdk.Command{
		ID: s.ID, Argv: s.Argv, Cwd: box.Shown(s.Cwd), State: sdk.CommandRunning, StartedAt: unixTime(s.Started),
		StdoutBytes: s.Stdout, StderrBytes: s.Stderr, Stdin: s.Stdin, Terminal: s.Terminal,
	}
	if s.Done == nil {
		return c
	}
	c.State, c.ExitCode = s.Done.Command(s.Signals)
	c.EndedAt = unixTime(s.Done.Ended)
	return c
}

// unixTime is exact to the microsecond, as a floating point number is.
func unixTime(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

// ListCommands implements sdk.Commands.
func (c *Commands) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	box, err := c.service.Box(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	states, err := Ask(ctx, c.service, func(ctx context.Context) ([]State, error) { return States(ctx, box) })
	if err != nil {
		return nil, c.service.Explain(ctx, err, "list the commands")
	}
	slices.SortFunc(states, func(a, b State) int { return unixTime(a.Started).Compare(unixTime(b.Started)) })
	all := make([]sdk.Command, len(states))
	for i, s := range states {
		all[i] = commandOf(box, s)
	}
	return all, nil
}

// ReadCommand implements sdk.Commands.
func (c *Commands) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	next := Look
	if req.Follow {
		next = Watch
	}
	inspect := func(ctx context.Context, box Box) (sdk.Command, error) {
		state, err := Inspect(ctx, box, req.CommandID)
		return commandOf(box, state), err
	}
	// What is not followed is read up to here.
	until, err := command(ctx, c, req.InstanceID, req.CommandID, inspect)
	if err != nil {
		return sdk.Command{}, err
	}
	stdout, stderr := req.StdoutOffset, req.StderrOffset
	for req.Follow || stdout < until.StdoutBytes || stderr < until.StderrBytes {
		got, err := command(ctx, c, req.InstanceID, req.CommandID, func(ctx context.Context, box Box) (Progress, error) {
			return next(ctx, box, req.CommandID, stdout, stderr)
		})
		if err != nil {
			return sdk.Command{}, err
		}
		for _, piece := range []sdk.CommandOutput{{Stream: sdk.Stdout, Offset: got.StdoutAt, Data: got.Stdout}, {Stream: sdk.Stderr, Offset: got.StderrAt, Data: got.Stderr}} {
			for data := range slices.Chunk(piece.Data, sdk.MaxOutputChunk) {
				if err := out(sdk.CommandOutput{Stream: piece.Stream, Offset: piece.Offset, Data: data}); err != nil {
					return sdk.Command{}, err
				}
				piece.Offset += int64(len(data))
			}
		}
		before := stdout + stderr
		stdout, stderr = got.StdoutAt+int64(len(got.Stdout)), got.StderrAt+int64(len(got.Stderr))
		if got.Done != nil || !req.Follow && stdout+stderr == before {
			break
		}
	}
	return command(ctx, c, req.InstanceID, req.CommandID, inspect)
}

// WriteCommand implements sdk.Commands.
func (c *Commands) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	release, err := c.writing.Take(ctx, commandID)
	if err != nil {
		return err
	}
	defer release()
	state, err := command(ctx, c, instanceID, commandID, func(ctx context.Context, box Box) (State, error) { return Inspect(ctx, box, commandID) })
	if err != nil {
		return err
	}
	if state.Closed || state.Done != nil {
		return errClosed
	}
	if state.Terminal && end {
		data, end = append(slices.Clone(data), endOfInput...), false
	}
	for offset, once := state.Taken, true; len(data) > 0 || end && once; once = false {
		piece := data[:min(len(data), inline)]
		last := end && len(piece) == len(data)
		taken, err := command(ctx, c, instanceID, commandID, func(ctx context.Context, box Box) (int64, error) {
			return Write(ctx, box, commandID, offset, piece, last)
		})
		if errors.Is(err, ErrEnded) {
			return errClosed
		}
		if err != nil {
			return err
		}
		data = data[min(taken-offset, int64(len(data))):]
		offset = taken
	}
	return nil
}

// ResizeCommand implements sdk.Commands.
func (c *Commands) ResizeCommand(ctx context.Context, instanceID, commandID string, size sdk.TerminalSize) error {
	_, err := command(ctx, c, instanceID, commandID, func(ctx context.Context, box Box) (struct{}, error) {
		return struct{}{}, Resize(ctx, box, commandID, Size{Rows: size.Rows, Columns: size.Columns})
	})
	if errors.Is(err, ErrEnded) {
		return sdk.Errorf(sdk.CodeConflict, "the command has no terminal, or has ended")
	}
	return err
}

// SignalCommand implements sdk.Commands.
func (c *Commands) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	if unix.SignalNum(signal) == 0 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "signal", "there is no signal %.30q", signal)
	}
	nonce := remote.NewName()
	_, err := command(ctx, c, instanceID, commandID, func(ctx context.Context, box Box) (struct{}, error) {
		return struct{}{}, Signal(ctx, box, commandID, signal, nonce)
	})
	if errors.Is(err, ErrEnded) {
		return errEnded
	}
	return err
}
