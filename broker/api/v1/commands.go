package v1

import (
	"context"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
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
			"With Accept: text/event-stream it is all of that as events, and with follow also what comes. " +
			"Output has the id STDOUT.STDERR, the offsets behind it: with Last-Event-ID the stream goes on there, also that of the request which has started the command.",
		Query: []rest.Parameter{
			{Name: "stdout_offset", Kind: rest.Integer, Doc: "The first byte of stdout to read, counted from the command's start. Default 0."},
			{Name: "stderr_offset", Kind: rest.Integer, Doc: "The same of stderr."},
			{Name: "follow", Kind: rest.Boolean, Doc: "Go on with what comes, until the command has ended. It takes Accept: text/event-stream."},
		},
		Continues: true,
		Success:   []int{http.StatusOK}, Codes: codes, Events: commandEvents(),
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

func (h commandRoutes) listCommands(ctx context.Context, c rest.Call[rest.None]) (int, client.CommandList, error) {
	list := client.CommandList{Commands: []client.Command{}}
	err := lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		all, err := commands.List(ctx)
		for _, command := range all {
			list.Commands = append(list.Commands, commandOf(command))
		}
		return err
	})
	return http.StatusOK, list, err
}

func (h commandRoutes) getCommand(ctx context.Context, c rest.Call[rest.None]) (int, client.Command, error) {
	var command sdk.Command
	err := lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) (err error) {
		command, err = commands.Look(ctx, c.Path["command"])
		return err
	})
	return http.StatusOK, commandOf(command), err
}

func (h commandRoutes) waitForCommand(ctx context.Context, c rest.Call[rest.None]) (int, client.Command, error) {
	var command sdk.Command
	err := lending.WatchCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) (err error) {
		atMost := min(duration(c.Query.Number("timeout", waitDefault.Seconds())), c.Timeout/2)
		command, err = commands.Wait(ctx, c.Path["command"], atMost)
		return err
	})
	return http.StatusOK, commandOf(command), err
}

func (h commandRoutes) signalCommand(ctx context.Context, c rest.Call[client.SignalRequest]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		return commands.Signal(ctx, c.Path["command"], c.Body.Signal)
	})
}

func (h commandRoutes) killCommand(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		return commands.Kill(ctx, c.Path["command"])
	})
}

func (h commandRoutes) resizeCommand(ctx context.Context, c rest.Call[client.TerminalSize]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		return commands.Resize(ctx, c.Path["command"], terminalSize(c.Body))
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

// stdinDefault and stdinMost bound the wait for a program that does not read.
const (
	stdinDefault = 30 * time.Second
	stdinMost    = 300 * time.Second
)

// writeCommand copies the body to the standard input of a command, as fast as the
// program reads.
func (h commandRoutes) writeCommand(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	patience := duration(c.Query.Number("timeout", stdinDefault.Seconds()))
	err := lending.WithCommands(r.Context(), h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		return commands.WriteFrom(ctx, c.Path["command"], r.Body, c.Query.Boolean("end"), patience)
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
