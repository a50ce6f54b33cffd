package v1

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
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
	req, err := logsRequest(c)
	if err != nil {
		return err
	}
	return lending.WatchCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Look(ctx, req.CommandID)
		if err != nil {
			return err
		}
		out := newCommandListener(ctx, to)
		out.next = [2]int64{req.StdoutOffset, req.StderrOffset}
		if c.LastEventID != "" { // it has got the first event
			err = to.Begin(ctx)
		} else {
			err = to.Send(ctx, client.EventStarted, commandOf(command))
		}
		if err != nil {
			return lending.Unheard{Err: err}
		}
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
	// next is the offset behind what was sent of stdout and of stderr.
	next [2]int64
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
	which := 0
	if piece.Stream == sdk.Stderr {
		which = 1
	}
	l.next[which] = piece.Offset + int64(len(piece.Data))
	data, err := rest.Encode(part)
	if err != nil {
		return err
	}
	if err := l.to.SendEncoded(l.ctx, sse.Event{ID: formatOffsets(l.next), Name: string(piece.Stream), Data: data}); err != nil {
		return lending.Unheard{Err: err}
	}
	return nil
}

// formatOffsets is the ID of an event of a command: where stdout and stderr go on behind it.
func formatOffsets(next [2]int64) string { return fmt.Sprintf("%d.%d", next[0], next[1]) }

var offsetsForm = regexp.MustCompile(`^([0-9]{1,18})\.([0-9]{1,18})$`)

// parseOffsets reads such an ID.
func parseOffsets(id string) (next [2]int64, ok bool) {
	parts := offsetsForm.FindStringSubmatch(id)
	if parts == nil {
		return next, false
	}
	for i := range next {
		next[i], _ = strconv.ParseInt(parts[i+1], 10, 64) // 18 digits fit
	}
	return next, true
}

// maxLogs bounds a page of logs, in bytes of each stream.
const maxLogs = 256 << 10

func (h commandRoutes) commandLogs(ctx context.Context, c rest.Call[rest.None]) (int, client.CommandLogs, error) {
	if c.Query.Boolean("follow") {
		return 0, client.CommandLogs{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "follow", "needs the header Accept: text/event-stream")
	}
	req, err := logsRequest(c)
	if err != nil {
		return 0, client.CommandLogs{}, err
	}
	var command sdk.Command
	var output lending.Output
	err = lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) (err error) {
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

func logsRequest(c rest.Call[rest.None]) (sdk.ReadCommandRequest, error) {
	req := sdk.ReadCommandRequest{
		CommandID:    c.Path["command"],
		StdoutOffset: c.Query.Integer("stdout_offset", 0), StderrOffset: c.Query.Integer("stderr_offset", 0),
		Follow: c.Query.Boolean("follow"),
	}
	if c.LastEventID == "" {
		return req, nil
	}
	next, ok := parseOffsets(c.LastEventID)
	if !ok {
		return req, sdk.FieldErrorf(sdk.CodeInvalidRequest, "Last-Event-ID", "is not the ID of an event of this stream")
	}
	req.StdoutOffset, req.StderrOffset = next[0], next[1]
	return req, nil
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
