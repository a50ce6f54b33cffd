package provider

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Commands = (*Provider)(nil)

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
func command[T any](ctx context.Context, p *Provider, instanceID, id string, call func(context.Context, sandbox) (T, error)) (T, error) {
	var none T
	box, err := p.lookup(ctx, instanceID)
	if err != nil {
		return none, err
	}
	if !commandID.MatchString(id) {
		return none, errNoCommand
	}
	value, err := ask(ctx, func(ctx context.Context) (T, error) { return call(ctx, box) })
	if errors.Is(err, place.ErrUnknown) {
		err = errNoCommand
	}
	return value, p.explain(ctx, err, sdk.CodeUnavailable, "ask for a command")
}

// StartCommand implements sdk.Commands.
func (p *Provider) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	box, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.Command{}, err
	}
	run := place.Program{
		ID: remote.NewName(), Argv: req.Argv, Dir: absolute(box, req.Cwd), Env: box.env(req.Env), Timeout: req.Timeout, Grace: sdk.InterruptGrace,
		Keep: req.KeepOutput, Stdin: req.Stdin || req.Terminal != nil,
	}
	if req.Terminal != nil {
		run.Terminal = &place.Size{Rows: req.Terminal.Rows, Columns: req.Terminal.Columns}
		run.Env = box.env(map[string]string{"TERM": "xterm-256color"}, box.Env, req.Env)
	}
	// The same name again does not start it twice.
	state, err := ask(ctx, func(ctx context.Context) (place.State, error) { return place.Command(ctx, box, run) })
	if err != nil {
		p.stop(ctx, box, run.ID)
		return sdk.Command{}, p.explain(ctx, err, sdk.CodeUnavailable, "start a command")
	}
	if state.Done != nil && state.Done.Error != "" {
		return sdk.Command{}, state.Done.Refusal()
	}
	return commandOf(box, state), nil
}

// commandOf is a command in the broker's words.
func commandOf(box sandbox, s place.State) sdk.Command {
	c := sdk.Command{
		ID: s.ID, Argv: s.Argv, Cwd: box.shown(s.Cwd), State: sdk.CommandRunning, StartedAt: unixTime(s.Started),
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
func (p *Provider) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	box, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	states, err := ask(ctx, func(ctx context.Context) ([]place.State, error) { return place.Commands(ctx, box) })
	if err != nil {
		return nil, p.explain(ctx, err, sdk.CodeUnavailable, "list the commands")
	}
	slices.SortFunc(states, func(a, b place.State) int { return unixTime(a.Started).Compare(unixTime(b.Started)) })
	all := make([]sdk.Command, len(states))
	for i, s := range states {
		all[i] = commandOf(box, s)
	}
	return all, nil
}

// ReadCommand implements sdk.Commands.
func (p *Provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	next := place.Look
	if req.Follow {
		next = place.Watch
	}
	inspect := func(ctx context.Context, box sandbox) (sdk.Command, error) {
		state, err := place.Inspect(ctx, box, req.CommandID)
		return commandOf(box, state), err
	}
	// What is not followed is read up to here.
	until, err := command(ctx, p, req.InstanceID, req.CommandID, inspect)
	if err != nil {
		return sdk.Command{}, err
	}
	stdout, stderr := req.StdoutOffset, req.StderrOffset
	for req.Follow || stdout < until.StdoutBytes || stderr < until.StderrBytes {
		got, err := command(ctx, p, req.InstanceID, req.CommandID, func(ctx context.Context, box sandbox) (place.Progress, error) {
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
	return command(ctx, p, req.InstanceID, req.CommandID, inspect)
}

// WriteCommand implements sdk.Commands.
func (p *Provider) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	release, err := p.writing.Take(ctx, commandID)
	if err != nil {
		return err
	}
	defer release()
	state, err := command(ctx, p, instanceID, commandID, func(ctx context.Context, box sandbox) (place.State, error) { return place.Inspect(ctx, box, commandID) })
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
		piece := data[:min(len(data), place.Input)]
		last := end && len(piece) == len(data)
		taken, err := command(ctx, p, instanceID, commandID, func(ctx context.Context, box sandbox) (int64, error) {
			return place.Write(ctx, box, commandID, offset, piece, last)
		})
		if errors.Is(err, place.ErrEnded) {
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
func (p *Provider) ResizeCommand(ctx context.Context, instanceID, commandID string, size sdk.TerminalSize) error {
	_, err := command(ctx, p, instanceID, commandID, func(ctx context.Context, box sandbox) (struct{}, error) {
		return struct{}{}, place.Resize(ctx, box, commandID, place.Size{Rows: size.Rows, Columns: size.Columns})
	})
	if errors.Is(err, place.ErrEnded) {
		return sdk.Errorf(sdk.CodeConflict, "the command has no terminal, or has ended")
	}
	return err
}

// SignalCommand implements sdk.Commands.
func (p *Provider) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	if unix.SignalNum(signal) == 0 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "signal", "there is no signal %.30q", signal)
	}
	nonce := remote.NewName()
	_, err := command(ctx, p, instanceID, commandID, func(ctx context.Context, box sandbox) (struct{}, error) {
		return struct{}{}, place.Signal(ctx, box, commandID, signal, nonce)
	})
	if errors.Is(err, place.ErrEnded) {
		return errEnded
	}
	return err
}
