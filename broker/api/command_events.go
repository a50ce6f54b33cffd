package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"reflect"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// commandEvents are the events of a command, whether a request starts it or reads
// its logs.
func commandEvents() []event {
	return []event{
		{EventStarted, "The command as it is when the stream begins. It comes first.", reflect.TypeFor[Command]()},
		{EventStdout, "Output, in order.", reflect.TypeFor[CommandOutputPart]()},
		{EventStderr, "Output, in order.", reflect.TypeFor[CommandOutputPart]()},
		{EventDone, "The last event: the command as it is then. It has ended, unless logs were read without follow.", reflect.TypeFor[Command]()},
		{EventError, "Or this is the last event: what failed after the start, as the problem that it would have been before.", reflect.TypeFor[Problem]()},
	}
}

// CommandOutputPart is a piece of a command's output: text or base64 is there.
type CommandOutputPart struct {
	_      struct{} `additionalProperties:"true"`
	Offset int64    `json:"offset" doc:"Where the piece begins in its stream. If that is later than the end of the piece before, what lies between is not kept any more: the reader was too slow."`
	Text   string   `json:"text,omitempty" doc:"The piece, if it is UTF-8. A character is never cut."`
	Base64 []byte   `json:"base64,omitempty" doc:"Else its exact bytes."`
}

// registerEither binds an operation that answers with one Out, or with events if
// the client prefers those and the request allows it. What fails before the first
// event is answered as usual.
func registerEither[In, Out any](s *Server, op operation, streams func(In) bool,
	answer func(ctx context.Context, c call[In]) (int, Out, error),
	events func(ctx context.Context, c call[In], to *eventStream) error,
) {
	in := reflect.TypeFor[In]()
	body := bodyDecoder(s, in)
	s.document.add(op, in, reflect.TypeFor[Out](), body)
	bind(s, op, func(c *fiber.Ctx, request call[In]) error {
		if err := readBody(c, body, &request.body); err != nil {
			return err
		}
		if wantsEvents(c) && streams(request.body) {
			c.Request().ResetBody() // else it is kept as long as the stream
			id := exchangeOf(c).requestID
			return s.handOver(c, func(w http.ResponseWriter, r *http.Request) error {
				to := newEventStream(w)
				defer to.close()
				err := events(r.Context(), request, to)
				if err == nil || !to.begun() || r.Context().Err() != nil {
					return err
				}
				p, _ := problemOf(err, id)
				return errors.Join(to.send(r.Context(), EventError, p), errTold{err})
			})
		}
		ctx, cancel := s.contextOf(c)
		defer cancel()
		status, out, err := answer(ctx, request)
		if err != nil {
			return err
		}
		return send(c, status, out)
	})
}

// streamCommand starts a command and streams its output.
func (s *Server) streamCommand(ctx context.Context, c call[StartCommandRequest], to *eventStream) error {
	req, err := commandRequest(c.body)
	if err != nil {
		return err
	}
	return s.withCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) error {
		if err := commands.lease.BoundCommand(&req, true); err != nil {
			return err
		}
		command, err := commands.start(ctx, c.body, req)
		if err != nil {
			return err
		}
		out := &commandListener{ctx: ctx, to: to}
		if err := to.send(ctx, EventStarted, commandOf(command)); err != nil {
			return errors.Join(unheardError{err}, commands.kill(ctx, command.ID))
		}
		if command, err = commands.follow(ctx, command.ID, out.take); err != nil {
			return err
		}
		return out.done(command)
	})
}

// streamLogs streams the output of a command that somebody has started.
func (s *Server) streamLogs(ctx context.Context, c call[none], to *eventStream) error {
	req := logsRequest(c)
	return s.watchCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) error {
		command, err := commands.look(ctx, req.CommandID, false)
		if err != nil {
			return err
		}
		if err := to.send(ctx, EventStarted, commandOf(command)); err != nil {
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
	to  *eventStream
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
	if err := l.to.send(l.ctx, EventDone, commandOf(command)); err != nil {
		return unheardError{err}
	}
	return nil
}

func (l *commandListener) send(piece sdk.CommandOutput) error {
	if len(piece.Data) == 0 {
		return nil
	}
	part := CommandOutputPart{Offset: piece.Offset}
	if utf8.Valid(piece.Data) {
		part.Text = string(piece.Data)
	} else {
		part.Base64 = piece.Data
	}
	if err := l.to.send(l.ctx, string(piece.Stream), part); err != nil {
		return unheardError{err}
	}
	return nil
}
