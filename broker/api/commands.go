package api

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// waitDefault and waitMost bound a wait for a command's end. Proxies take a
// connection that is silent for longer as dead.
const (
	waitDefault = 30 * time.Second
	waitMost    = 300 * time.Second
)

// leasedCommands is a provider's commands with the instance that they are for.
type leasedCommands struct {
	sdk.Commands
	lease *instance.Lease
}

// withCommands lends the commands of an instance. The context that use gets ends
// with ctx and when the broker stops.
func (s *Server) withCommands(ctx context.Context, who tenant.Tenant, id string, use func(context.Context, leasedCommands) error) error {
	return s.lendCommands(ctx, who, id, (*instance.Lease).Within, use)
}

// watchCommands is withCommands for who looks on: the broker does not wait for
// that when it stops.
func (s *Server) watchCommands(ctx context.Context, who tenant.Tenant, id string, use func(context.Context, leasedCommands) error) error {
	return s.lendCommands(ctx, who, id, (*instance.Lease).Watching, use)
}

func (s *Server) lendCommands(ctx context.Context, who tenant.Tenant, id string,
	within func(*instance.Lease, context.Context) (context.Context, context.CancelFunc),
	use func(context.Context, leasedCommands) error,
) error {
	lease, err := s.instances.Lease(ctx, who, id, sdk.CapabilityCommands)
	if err != nil {
		return err
	}
	defer lease.Release()
	commands, err := instance.Capable[sdk.Commands](lease)
	if err != nil {
		return err
	}
	ctx, cancel := within(lease, ctx)
	defer cancel()
	err = use(ctx, leasedCommands{commands, lease})
	if unheard, ok := errors.AsType[unheardError](err); ok {
		return unheard.error
	}
	return lease.Fault(ctx, err)
}

// unheardError is a failure of whoever listens, and not of the provider.
type unheardError struct{ error }

func (s *Server) listCommands(ctx context.Context, c call[none]) (int, CommandList, error) {
	list := CommandList{Commands: []Command{}}
	err := s.withCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) error {
		all, err := commands.ListCommands(ctx, commands.lease.InstanceID)
		for _, command := range all {
			list.Commands = append(list.Commands, commandOf(command))
		}
		return err
	})
	return http.StatusOK, list, err
}

func (s *Server) getCommand(ctx context.Context, c call[none]) (int, Command, error) {
	var command sdk.Command
	err := s.withCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) (err error) {
		command, err = commands.look(ctx, c.path["command"], false)
		return err
	})
	return http.StatusOK, commandOf(command), err
}

// look returns a command without its output, now or when it has ended.
func (c leasedCommands) look(ctx context.Context, id string, ended bool) (sdk.Command, error) {
	return c.ReadCommand(ctx, sdk.ReadCommandRequest{
		InstanceID: c.lease.InstanceID, CommandID: id, Follow: ended,
		StdoutOffset: math.MaxInt64, StderrOffset: math.MaxInt64,
	}, func(sdk.CommandOutput) error { return nil })
}

func (s *Server) waitForCommand(ctx context.Context, c call[none]) (int, Command, error) {
	var command sdk.Command
	err := s.watchCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) (err error) {
		patience, cancel := context.WithTimeout(ctx, min(duration(c.query.number("timeout", waitDefault.Seconds())), s.requestTimeout()/2))
		defer cancel()
		command, err = commands.look(patience, c.path["command"], true)
		if ranOut(ctx, patience, err) {
			command, err = commands.look(ctx, c.path["command"], false)
		}
		return err
	})
	return http.StatusOK, commandOf(command), err
}

// ranOut reports whether a call failed because the time of its own context is over,
// while that of ctx goes on. The provider has the same deadline, and its clock may
// be a moment ahead of ours.
func ranOut(ctx, own context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && (own.Err() != nil || errors.Is(err, context.DeadlineExceeded))
}

func (s *Server) signalCommand(ctx context.Context, c call[SignalRequest]) (int, none, error) {
	return http.StatusNoContent, none{}, s.withCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) error {
		return commands.SignalCommand(ctx, commands.lease.InstanceID, c.path["command"], c.body.Signal)
	})
}

// killCommand is done when the command is known and does not run.
func (s *Server) killCommand(ctx context.Context, c call[none]) (int, none, error) {
	return http.StatusNoContent, none{}, s.withCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) error {
		err := commands.SignalCommand(ctx, commands.lease.InstanceID, c.path["command"], "SIGKILL")
		if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
			return nil
		}
		return err
	})
}

func (s *Server) resizeCommand(ctx context.Context, c call[TerminalSize]) (int, none, error) {
	return http.StatusNoContent, none{}, s.withCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) error {
		return commands.ResizeCommand(ctx, commands.lease.InstanceID, c.path["command"], terminalSize(c.body))
	})
}

func terminalSize(size TerminalSize) sdk.TerminalSize {
	return sdk.TerminalSize{Rows: uint16(size.Rows), Columns: uint16(size.Columns)} // the schema bounds them
}

func commandOf(c sdk.Command) Command {
	command := Command{
		ID: c.ID, Argv: c.Argv, Cwd: c.Cwd, State: string(c.State), StartedAt: c.StartedAt.UTC(),
		StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes, Stdin: c.Stdin, Terminal: c.Terminal,
	}
	if c.Argv == nil {
		command.Argv = []string{}
	}
	if c.State != sdk.CommandRunning {
		ended := c.EndedAt.UTC()
		command.ExitCode, command.EndedAt = &c.ExitCode, &ended
	}
	// What has a code is the same for executions.
	if code := sdk.Status(c.State).Code(); code != "" {
		info := code.Info()
		command.Error = &ExecutionError{Code: string(code), Title: info.Title, Detail: info.Advice, Retryable: info.Retryable}
	}
	return command
}
