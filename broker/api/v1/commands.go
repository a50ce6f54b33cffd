package v1

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// commandRoutes are those of the capability "commands".
type commandRoutes struct{ instances Instances }

func (h commandRoutes) register(a *rest.API) {
	const all, one = "/api/v1/instances/{id}/commands", "/api/v1/instances/{id}/commands/{command}"
	codes := append(providerCodes(), sdk.CodeNotFound)
	conflicting := append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict)
	rest.RegisterEither(a, rest.Operation{
		Method: http.MethodPost, Path: all, ID: "startCommand", Tag: tagCommands,
		Summary: "Run a command",
		Details: "Answers 200 when the command has ended, with its output, or with background 201 as soon as it runs. " +
			"A client that goes away kills a command that is not in the background. " +
			"With the command ends all that it started, and with the instance end all commands.\n\n" +
			"With Accept: text/event-stream, output comes as events while it happens, unless the command is to run in the background.",
		Success: []int{http.StatusOK, http.StatusCreated}, Codes: codes, Events: commandEvents(),
	}, func(body client.StartCommandRequest) bool { return !body.Background }, h.startCommand, h.streamCommand)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: all, ID: "listCommands", Tag: tagCommands,
		Summary: "List the commands of an instance",
		Details: "Those that have ended stay for a while, at least the last ten.",
		Success: []int{http.StatusOK}, Codes: codes,
	}, h.listCommands)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: one, ID: "getCommand", Tag: tagCommands,
		Summary: "Look at a command",
		Success: []int{http.StatusOK}, Codes: codes,
	}, h.getCommand)
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: one, ID: "killCommand", Tag: tagCommands,
		Summary: "Kill a command and all that it started",
		Details: "The command stays known with its output. One that has ended is left as it is.",
		Success: []int{http.StatusNoContent}, Codes: codes,
	}, h.killCommand)
	rest.RegisterEither(a, rest.Operation{
		Method: http.MethodGet, Path: one + "/logs", ID: "commandLogs", Tag: tagCommands,
		Summary: "Read what a command has printed",
		Details: "Answers one page of what is kept: the last part of each stream. Ask again with the next offsets for more. " +
			"With Accept: text/event-stream it is all of that as events, and with follow also what comes.",
		Query: []rest.Parameter{
			{Name: "stdout_offset", Kind: rest.Integer, Doc: "The first byte of stdout to read, counted from the command's start. Default 0."},
			{Name: "stderr_offset", Kind: rest.Integer, Doc: "The same of stderr."},
			{Name: "follow", Kind: rest.Boolean, Doc: "Go on with what comes, until the command has ended. It takes Accept: text/event-stream."},
		},
		Success: []int{http.StatusOK}, Codes: codes, Events: commandEvents(),
	}, nil, h.commandLogs, h.streamLogs)
	rest.Stream(a, rest.Operation{
		Method: http.MethodPost, Path: one + "/stdin", ID: "writeCommand", Tag: tagCommands,
		Summary: "Write to a command's standard input",
		Details: "The body, of whatever type, is written as it is, as fast as the program reads. " +
			"A conflict means that standard input is closed, was never open, or is not read.",
		Query: []rest.Parameter{
			{Name: "end", Kind: rest.Boolean, Doc: "Close standard input behind the body, which may be empty. A terminal gets the character for the end of input instead."},
			{Name: "timeout", Kind: rest.Number, Most: stdinMost.Seconds(), Doc: "Seconds to wait for a program that does not read. Default 30."},
		},
		Consumes: "application/octet-stream",
		Success:  []int{http.StatusNoContent}, Codes: conflicting,
	}, h.writeCommand)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: one + "/signal", ID: "signalCommand", Tag: tagCommands,
		Summary: "Send a signal to every process of a command",
		Success: []int{http.StatusNoContent}, Codes: conflicting,
	}, h.signalCommand)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: one + "/resize", ID: "resizeCommand", Tag: tagCommands,
		Summary: "Tell a command's terminal its size",
		Success: []int{http.StatusNoContent}, Codes: conflicting,
	}, h.resizeCommand)
	rest.Stream(a, rest.Operation{
		Method: http.MethodGet, Path: one + "/terminal", ID: "attachTerminal", Tag: tagCommands,
		Summary: "Sit down at a command's terminal",
		Details: "A WebSocket. Binary frames are what is typed and what is shown. Text frames are JSON: {\"resize\": {\"rows\": 24, \"columns\": 80}} from you; " +
			"{\"lost\": bytes}, {\"done\": the command} and {\"error\": a problem} from the broker, which closes after the last two. " +
			"A client that leaves does not end the command, and may come back. " +
			"A browser, which cannot set headers, offers the subprotocols " + client.TerminalProtocol + " and bearer.<token>; the page must be of the broker's own origin.",
		Query: []rest.Parameter{
			{Name: "stdout_offset", Kind: rest.Integer, Doc: "The first byte of the output to show. Default 0: all that is kept."},
		},
		Success: []int{http.StatusSwitchingProtocols}, Codes: append(conflicting, sdk.CodeNotAllowed),
	}, h.attachTerminal)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: one + "/wait", ID: "waitForCommand", Tag: tagCommands,
		Summary: "Wait for the end of a command",
		Details: "Answers when the command has ended or the time is over: state tells which.",
		Query: []rest.Parameter{
			{Name: "timeout", Kind: rest.Number, Most: waitMost.Seconds(), Doc: "Seconds. Default 30."},
		},
		Success: []int{http.StatusOK}, Codes: codes,
	}, h.waitForCommand)
}

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
func (h commandRoutes) withCommands(ctx context.Context, who tenant.Tenant, id string, use func(context.Context, leasedCommands) error) error {
	return h.lendCommands(ctx, who, id, (*instance.Lease).Within, use)
}

// watchCommands is withCommands for who looks on: the broker does not wait for
// that when it stops.
func (h commandRoutes) watchCommands(ctx context.Context, who tenant.Tenant, id string, use func(context.Context, leasedCommands) error) error {
	return h.lendCommands(ctx, who, id, (*instance.Lease).Watching, use)
}

func (h commandRoutes) lendCommands(ctx context.Context, who tenant.Tenant, id string,
	within func(*instance.Lease, context.Context) (context.Context, context.CancelFunc),
	use func(context.Context, leasedCommands) error,
) error {
	return lend(ctx, h.instances, who, id, sdk.CapabilityCommands, within, func(ctx context.Context, commands sdk.Commands, lease *instance.Lease) error {
		return use(ctx, leasedCommands{commands, lease})
	})
}

func (h commandRoutes) listCommands(ctx context.Context, c rest.Call[rest.None]) (int, client.CommandList, error) {
	list := client.CommandList{Commands: []client.Command{}}
	err := h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		all, err := commands.ListCommands(ctx, commands.lease.InstanceID)
		for _, command := range all {
			list.Commands = append(list.Commands, commandOf(command))
		}
		return err
	})
	return http.StatusOK, list, err
}

func (h commandRoutes) getCommand(ctx context.Context, c rest.Call[rest.None]) (int, client.Command, error) {
	var command sdk.Command
	err := h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) (err error) {
		command, err = commands.look(ctx, c.Path["command"], false)
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

func (h commandRoutes) waitForCommand(ctx context.Context, c rest.Call[rest.None]) (int, client.Command, error) {
	var command sdk.Command
	err := h.watchCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) (err error) {
		patience, cancel := context.WithTimeout(ctx, min(duration(c.Query.Number("timeout", waitDefault.Seconds())), c.Timeout/2))
		defer cancel()
		command, err = commands.look(patience, c.Path["command"], true)
		if ranOut(ctx, patience, err) {
			command, err = commands.look(ctx, c.Path["command"], false)
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

func (h commandRoutes) signalCommand(ctx context.Context, c rest.Call[client.SignalRequest]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		return commands.SignalCommand(ctx, commands.lease.InstanceID, c.Path["command"], c.Body.Signal)
	})
}

// killCommand is done when the command is known and does not run.
func (h commandRoutes) killCommand(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		err := commands.SignalCommand(ctx, commands.lease.InstanceID, c.Path["command"], "SIGKILL")
		if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
			return nil
		}
		return err
	})
}

func (h commandRoutes) resizeCommand(ctx context.Context, c rest.Call[client.TerminalSize]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		return commands.ResizeCommand(ctx, commands.lease.InstanceID, c.Path["command"], terminalSize(c.Body))
	})
}

func terminalSize(size client.TerminalSize) sdk.TerminalSize {
	return sdk.TerminalSize{Rows: uint16(size.Rows), Columns: uint16(size.Columns)} // the schema bounds them
}

func commandOf(c sdk.Command) client.Command {
	command := client.Command{
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
		command.Error = &client.ExecutionError{Code: string(code), Title: info.Title, Detail: info.Advice, Retryable: info.Retryable}
	}
	return command
}

const (
	// inputPiece is how much is written to standard input at once.
	inputPiece = 32 << 10
	// stdinDefault and stdinMost bound the wait for a program that does not read.
	stdinDefault = 30 * time.Second
	stdinMost    = 300 * time.Second
)

// writeCommand copies the body to the standard input of a command, as fast as the
// program reads.
func (h commandRoutes) writeCommand(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	patience := duration(c.Query.Number("timeout", stdinDefault.Seconds()))
	err := h.withCommands(r.Context(), c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		written, buf := 0, make([]byte, inputPiece)
		for {
			n, readErr := io.ReadFull(r.Body, buf)
			ended := errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF)
			if readErr != nil && !ended {
				return unheardError{readErr}
			}
			end := ended && c.Query.Boolean("end")
			if n > 0 || end || written == 0 { // an empty body is written too: it may be refused
				if err := commands.write(ctx, c.Path["command"], buf[:n], end, patience, written); err != nil {
					return err
				}
			}
			if written += n; ended {
				return nil
			}
		}
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// write writes a piece of what goes to standard input. before is how much was
// written already.
func (c leasedCommands) write(ctx context.Context, id string, piece []byte, end bool, patience time.Duration, before int) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := c.WriteCommand(waiting, c.lease.InstanceID, id, piece, end)
	if ranOut(ctx, waiting, err) {
		return sdk.Errorf(sdk.CodeConflict, "the command does not read its standard input: it has taken %d bytes of this, and perhaps some of the %d after them", before, len(piece))
	}
	return err
}
