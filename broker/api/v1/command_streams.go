package v1

import (
	"context"
	"errors"
	"net/http"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// commandEvents are the events of a command, whether a request starts it or reads
// its logs.
func commandEvents() []rest.Event {
	return []rest.Event{
		rest.EventOf[client.Command](client.EventStarted, "The command as it is when the stream begins. It comes first."),
		rest.EventOf[client.CommandOutputPart](client.EventStdout, "Output, in order."),
		rest.EventOf[client.CommandOutputPart](client.EventStderr, "Output, in order."),
		rest.EventOf[client.Command](client.EventDone, "The last event: the command as it is then. It has ended, unless logs were read without follow."),
		rest.EventOf[client.Problem](rest.EventError, "Or this is the last event: what failed after the start, as the problem that it would have been before."),
	}
}

// streamCommand starts a command and streams its output.
func (h commandRoutes) streamCommand(ctx context.Context, c rest.Call[client.StartCommandRequest], to *rest.EventStream) error {
	req, err := commandRequest(c.Body)
	if err != nil {
		return err
	}
	return lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Start(ctx, req, lending.StartOptions{Input: []byte(c.Body.Input), WaitedFor: true})
		if err != nil {
			return err
		}
		out := newCommandListener(ctx, to)
		if err := to.Send(ctx, client.EventStarted, commandOf(command)); err != nil {
			return errors.Join(lending.Unheard{Err: err}, commands.Abandon(ctx, command.ID))
		}
		if command, err = commands.Follow(ctx, command.ID, out.text.Take); err != nil {
			return err
		}
		return out.done(command)
	})
}

// streamLogs streams the output of a command that somebody has started.
func (h commandRoutes) streamLogs(ctx context.Context, c rest.Call[rest.None], to *rest.EventStream) error {
	req := logsRequest(c)
	return lending.WatchCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Look(ctx, req.CommandID)
		if err != nil {
			return err
		}
		if err := to.Send(ctx, client.EventStarted, commandOf(command)); err != nil {
			return lending.Unheard{Err: err}
		}
		out := newCommandListener(ctx, to)
		if command, err = commands.Read(ctx, req, out.text.Take); err != nil {
			return err
		}
		return out.done(command)
	})
}

// commandListener makes events of a command's output. Its errors are lending.Unheard.
type commandListener struct {
	ctx  context.Context // of the request, as whose answer this lives
	to   *rest.EventStream
	text *lending.RuneCutter
}

func newCommandListener(ctx context.Context, to *rest.EventStream) *commandListener {
	l := &commandListener{ctx: ctx, to: to}
	l.text = lending.NewRuneCutter(l.send)
	return l
}

// done sends what was held back, and the last event.
func (l *commandListener) done(command sdk.Command) error {
	if err := l.text.End(); err != nil {
		return err
	}
	if err := l.to.Send(l.ctx, client.EventDone, commandOf(command)); err != nil {
		return lending.Unheard{Err: err}
	}
	return nil
}

func (l *commandListener) send(piece sdk.CommandOutput) error {
	part := client.CommandOutputPart{Offset: piece.Offset}
	if utf8.Valid(piece.Data) {
		part.Text = string(piece.Data)
	} else {
		part.Base64 = piece.Data
	}
	if err := l.to.Send(l.ctx, string(piece.Stream), part); err != nil {
		return lending.Unheard{Err: err}
	}
	return nil
}

// maxLogs bounds a page of logs, in bytes of each stream.
const maxLogs = 256 << 10

func (h commandRoutes) commandLogs(ctx context.Context, c rest.Call[rest.None]) (int, client.CommandLogs, error) {
	if c.Query.Boolean("follow") {
		return 0, client.CommandLogs{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "follow", "needs the header Accept: text/event-stream")
	}
	req := logsRequest(c)
	var command sdk.Command
	var output lending.Output
	err := lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) (err error) {
		command, output, err = commands.ReadPage(ctx, req, maxLogs)
		return err
	})
	if err != nil {
		return 0, client.CommandLogs{}, err
	}
	logs := client.CommandLogs{StdoutOffset: output.Stdout.Begin, StderrOffset: output.Stderr.Begin, Command: commandOf(command)}
	logs.Stdout, logs.StdoutBase64, logs.NextStdout = pageOf(output.Stdout)
	logs.Stderr, logs.StderrBase64, logs.NextStderr = pageOf(output.Stderr)
	return http.StatusOK, logs, nil
}

func logsRequest(c rest.Call[rest.None]) sdk.ReadCommandRequest {
	return sdk.ReadCommandRequest{
		CommandID:    c.Path["command"],
		StdoutOffset: c.Query.Integer("stdout_offset", 0), StderrOffset: c.Query.Integer("stderr_offset", 0),
		Follow: c.Query.Boolean("follow"),
	}
}

// pageOf shows a part and where the next begins. Half a character at its end is left
// to that, unless it is all that there is.
func pageOf(p lending.OutputPart) (shown string, exact []byte, next int64) {
	if whole := lending.WholeRunes(p.Bytes); len(whole) > 0 {
		p.Bytes = whole
	}
	shown, exact = text(p.Bytes, false)
	return shown, exact, p.Next()
}
