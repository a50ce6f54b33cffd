package lending

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// MaxInput is the most that a command gets to read when it is started, in bytes:
	// what a pipe takes at once.
	MaxInput = 64 << 10
	// inputTime is how long a terminal may take for it.
	inputTime = 5 * time.Second
	// inputPiece is how much is written to standard input at once.
	inputPiece = 32 << 10
	// cleanUpTime bounds the killing of a command that nobody waits for any more.
	cleanUpTime = 10 * time.Second
)

// Commands is a provider's commands in the instance that is lent.
type Commands struct {
	Lease    *instance.Lease
	provider sdk.Commands
}

// WithCommands lends the commands of an instance. The context that use gets ends
// with ctx and when the broker stops.
func WithCommands(ctx context.Context, instances Instances, who tenant.Tenant, id string, use func(context.Context, Commands) error) error {
	return lendCommands(ctx, instances, who, id, (*instance.Lease).Within, use)
}

// WatchCommands is WithCommands for who looks on: the broker does not wait for
// that when it stops.
func WatchCommands(ctx context.Context, instances Instances, who tenant.Tenant, id string, use func(context.Context, Commands) error) error {
	return lendCommands(ctx, instances, who, id, (*instance.Lease).Watching, use)
}

func lendCommands(ctx context.Context, instances Instances, who tenant.Tenant, id string,
	within func(*instance.Lease, context.Context) (context.Context, context.CancelFunc),
	use func(context.Context, Commands) error,
) error {
	return Lend(ctx, instances, who, id, sdk.CapabilityCommands, within, func(ctx context.Context, commands sdk.Commands, lease *instance.Lease) error {
		return use(ctx, Commands{lease, commands})
	})
}

// StartOptions say more about a command that is started.
type StartOptions struct {
	// Input is what the command gets to read first, MaxInput bytes at most. Its
	// standard input ends behind that, unless the request keeps it open.
	Input []byte
	// WaitedFor is set if the caller waits for the end: the command has the time
	// limit of an execution then. Else it has none unless it asks.
	WaitedFor bool
}

// Start starts a command, within the limits that there are, and gives it its input.
// When ctx ends meanwhile, the command does not run.
func (c Commands) Start(ctx context.Context, req sdk.CommandRequest, opts StartOptions) (sdk.Command, error) {
	if err := c.Lease.BoundCommand(&req, opts.WaitedFor); err != nil {
		return sdk.Command{}, err
	}
	return c.start(ctx, req, opts.Input)
}

// start is Start for a request that has its limits.
func (c Commands) start(ctx context.Context, req sdk.CommandRequest, input []byte) (sdk.Command, error) {
	end := !req.Stdin && req.Terminal == nil
	req.Stdin = req.Stdin || len(input) > 0
	// Of a call that is broken off, nobody would know whether it had started.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	command, err := c.provider.StartCommand(detached, req)
	if err != nil {
		return sdk.Command{}, err
	}
	if err = ctx.Err(); err == nil && len(input) > 0 {
		err = c.feed(ctx, command.ID, input, end)
	}
	if err != nil {
		return sdk.Command{}, errors.Join(err, c.Abandon(ctx, command.ID))
	}
	return command, nil
}

// feed writes what comes with the start. A program that does not want it is no error.
func (c Commands) feed(ctx context.Context, id string, input []byte, end bool) error {
	patience, cancel := context.WithTimeout(ctx, inputTime)
	defer cancel()
	err := c.Write(patience, id, input, end)
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}):
		return nil
	case RanOut(ctx, patience, err):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "input", "is more than the terminal takes before the program reads it")
	}
	return err
}

// Run starts a command with its input and waits for its end. If ctx ends before, so
// does the command.
func (c Commands) Run(ctx context.Context, req sdk.CommandRequest, input []byte) (sdk.Command, Output, error) {
	if err := c.Lease.BoundCommand(&req, true); err != nil {
		return sdk.Command{}, Output{}, err
	}
	started, err := c.start(ctx, req, input)
	if err != nil {
		return sdk.Command{}, Output{}, err
	}
	// The provider ends it in time, unless it hangs.
	ctx, cancel := context.WithTimeout(ctx, req.Timeout+c.Lease.AnswerGrace())
	defer cancel()
	output := Output{limit: c.Lease.OutputLimit()}
	command, err := c.Follow(ctx, started.ID, output.drop)
	if err != nil {
		return sdk.Command{}, Output{}, err
	}
	return command, output, nil
}

// Follow passes on what a command prints and returns when it has ended. If ctx
// ends before, or out fails, so does the command.
func (c Commands) Follow(ctx context.Context, id string, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	command, err := c.Read(ctx, sdk.ReadCommandRequest{CommandID: id, Follow: true}, out)
	if err != nil {
		return sdk.Command{}, errors.Join(err, c.Abandon(ctx, id))
	}
	return command, nil
}

// List returns the commands that run, and those that are still known.
func (c Commands) List(ctx context.Context) ([]sdk.Command, error) {
	return c.provider.ListCommands(ctx, c.Lease.InstanceID)
}

// Look returns a command without its output, as it is now.
func (c Commands) Look(ctx context.Context, id string) (sdk.Command, error) {
	return c.look(ctx, id, false)
}

// Wait returns a command when it has ended, or as it is when that has taken too long.
func (c Commands) Wait(ctx context.Context, id string, atMost time.Duration) (sdk.Command, error) {
	patience, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	command, err := c.look(patience, id, true)
	if RanOut(ctx, patience, err) {
		return c.look(ctx, id, false)
	}
	return command, err
}

func (c Commands) look(ctx context.Context, id string, ended bool) (sdk.Command, error) {
	return c.Read(ctx, sdk.ReadCommandRequest{
		CommandID: id, Follow: ended, StdoutOffset: math.MaxInt64, StderrOffset: math.MaxInt64,
	}, func(sdk.CommandOutput) error { return nil })
}

// Read passes on what a command has printed from the offsets of the request on, and
// with Follow what it will print. The instance of the request is filled in.
func (c Commands) Read(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	req.InstanceID = c.Lease.InstanceID
	return c.provider.ReadCommand(ctx, req, out)
}

// ReadPage collects what Read passes on, until one of the streams has come to the
// limit, in bytes.
func (c Commands) ReadPage(ctx context.Context, req sdk.ReadCommandRequest, limit int64) (sdk.Command, Output, error) {
	output := Output{limit: limit, Stdout: OutputPart{Begin: req.StdoutOffset}, Stderr: OutputPart{Begin: req.StderrOffset}}
	command, err := c.Read(ctx, req, output.take)
	if errors.Is(err, errFull) {
		command, err = c.Look(ctx, req.CommandID)
	}
	return command, output, err
}

// Write writes to the standard input of a command, and closes it behind that with end.
// It waits for the program to read until ctx ends.
func (c Commands) Write(ctx context.Context, id string, data []byte, end bool) error {
	return c.provider.WriteCommand(ctx, c.Lease.InstanceID, id, data, end)
}

// WriteFrom copies all of a reader to the standard input of a command, as fast as the
// program reads. A program that does not read for as long as patience is a conflict.
func (c Commands) WriteFrom(ctx context.Context, id string, from io.Reader, end bool, patience time.Duration) error {
	written, buf := 0, make([]byte, inputPiece)
	for {
		n, readErr := io.ReadFull(from, buf)
		ended := errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF)
		if readErr != nil && !ended {
			return Unheard{readErr}
		}
		endNow := ended && end
		if n > 0 || endNow || written == 0 { // an empty body is written too: it may be refused
			if err := c.writePiece(ctx, id, buf[:n], endNow, patience, written); err != nil {
				return err
			}
		}
		if written += n; ended {
			return nil
		}
	}
}

// writePiece writes a piece of what goes to standard input. before is how much was
// written already.
func (c Commands) writePiece(ctx context.Context, id string, piece []byte, end bool, patience time.Duration, before int) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := c.Write(waiting, id, piece, end)
	if RanOut(ctx, waiting, err) {
		return sdk.Errorf(sdk.CodeConflict, "the command does not read its standard input: it has taken %d bytes of this, and perhaps some of the %d after them", before, len(piece))
	}
	return err
}

// Resize tells a command that its terminal has another size.
func (c Commands) Resize(ctx context.Context, id string, size sdk.TerminalSize) error {
	return c.provider.ResizeCommand(ctx, c.Lease.InstanceID, id, size)
}

// Signal sends a signal to every process of a command.
func (c Commands) Signal(ctx context.Context, id, signal string) error {
	return c.provider.SignalCommand(ctx, c.Lease.InstanceID, id, signal)
}

// Kill is done when the command is known and does not run.
func (c Commands) Kill(ctx context.Context, id string) error {
	err := c.Signal(ctx, id, "SIGKILL")
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		return nil
	}
	return err
}

// Abandon ends a command that nobody waits for any more, also after the end of ctx. One
// that is not known is none.
func (c Commands) Abandon(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	err := c.Kill(ctx, id)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeNotFound}) {
		return nil
	}
	return err
}
