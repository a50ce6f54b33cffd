package v1

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"unicode/utf8"

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
	return h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		if err := commands.lease.BoundCommand(&req, true); err != nil {
			return err
		}
		command, err := commands.start(ctx, c.Body, req)
		if err != nil {
			return err
		}
		out := &commandListener{ctx: ctx, to: to}
		if err := to.Send(ctx, client.EventStarted, commandOf(command)); err != nil {
			return errors.Join(unheardError{err}, commands.kill(ctx, command.ID))
		}
		if command, err = commands.follow(ctx, command.ID, out.take); err != nil {
			return err
		}
		return out.done(command)
	})
}

// streamLogs streams the output of a command that somebody has started.
func (h commandRoutes) streamLogs(ctx context.Context, c rest.Call[rest.None], to *rest.EventStream) error {
	req := logsRequest(c)
	return h.watchCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		command, err := commands.look(ctx, req.CommandID, false)
		if err != nil {
			return err
		}
		if err := to.Send(ctx, client.EventStarted, commandOf(command)); err != nil {
			return unheardError{err}
		}
		req.InstanceID = commands.lease.InstanceID
		out := &commandListener{ctx: ctx, to: to}
		if command, err = commands.ReadCommand(ctx, req, out.take); err != nil {
			return err
		}
		return out.done(command)
	})
}

// commandListener makes events of a command's output.
type commandListener struct {
	ctx context.Context // of the request, as whose answer this lives
	to  *rest.EventStream
	// cut holds the beginning of a character whose rest has not come, of stdout
	// and of stderr.
	cut [2]sdk.CommandOutput
}

// take sends a piece. Its error is an unheardError.
func (l *commandListener) take(piece sdk.CommandOutput) error {
	cut := &l.cut[0]
	if piece.Stream == sdk.Stderr {
		cut = &l.cut[1]
	}
	if cut.Offset+int64(len(cut.Data)) != piece.Offset {
		if err := l.send(*cut); err != nil { // the rest of the character is lost
			return err
		}
		cut.Data = nil
	}
	data := append(cut.Data, piece.Data...)
	begin := piece.Offset - int64(len(cut.Data))
	whole := wholeRunes(data)
	*cut = sdk.CommandOutput{Stream: piece.Stream, Offset: begin + int64(len(whole)), Data: bytes.Clone(data[len(whole):])}
	return l.send(sdk.CommandOutput{Stream: piece.Stream, Offset: begin, Data: whole})
}

// done sends what was held back, and the last event.
func (l *commandListener) done(command sdk.Command) error {
	for _, cut := range l.cut {
		if err := l.send(cut); err != nil {
			return err
		}
	}
	if err := l.to.Send(l.ctx, client.EventDone, commandOf(command)); err != nil {
		return unheardError{err}
	}
	return nil
}

func (l *commandListener) send(piece sdk.CommandOutput) error {
	if len(piece.Data) == 0 {
		return nil
	}
	part := client.CommandOutputPart{Offset: piece.Offset}
	if utf8.Valid(piece.Data) {
		part.Text = string(piece.Data)
	} else {
		part.Base64 = piece.Data
	}
	if err := l.to.Send(l.ctx, string(piece.Stream), part); err != nil {
		return unheardError{err}
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
	output := commandOutput{limit: maxLogs, stdout: outputPart{begin: req.StdoutOffset}, stderr: outputPart{begin: req.StderrOffset}}
	var command sdk.Command
	err := h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) (err error) {
		req.InstanceID = commands.lease.InstanceID
		if command, err = commands.ReadCommand(ctx, req, output.take); errors.Is(err, errFull) {
			command, err = commands.look(ctx, req.CommandID, false)
		}
		return err
	})
	if err != nil {
		return 0, client.CommandLogs{}, err
	}
	logs := client.CommandLogs{StdoutOffset: output.stdout.begin, StderrOffset: output.stderr.begin, Command: commandOf(command)}
	logs.Stdout, logs.StdoutBase64, logs.NextStdout = output.stdout.page()
	logs.Stderr, logs.StderrBase64, logs.NextStderr = output.stderr.page()
	return http.StatusOK, logs, nil
}

func logsRequest(c rest.Call[rest.None]) sdk.ReadCommandRequest {
	return sdk.ReadCommandRequest{
		CommandID:    c.Path["command"],
		StdoutOffset: c.Query.Integer("stdout_offset", 0), StderrOffset: c.Query.Integer("stderr_offset", 0),
		Follow: c.Query.Boolean("follow"),
	}
}

// page shows a part and where the next begins. Half a character at its end is left
// to that, unless it is all that there is.
func (p *outputPart) page() (shown string, exact []byte, next int64) {
	if whole := wholeRunes(p.bytes); len(whole) > 0 {
		p.bytes = whole
	}
	shown, exact = text(p.bytes, false)
	return shown, exact, p.next()
}
