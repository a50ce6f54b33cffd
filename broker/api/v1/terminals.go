package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	// maxFrame bounds what a client sends at once, in bytes.
	maxFrame = 64 << 10
	// typingTime is how long a program may leave what was typed unread.
	typingTime = 20 * time.Second
	// pingEvery keeps proxies from taking a silent connection for a dead one;
	// pingTime is how long the answer may take, typing that waits included.
	pingEvery = 20 * time.Second
	pingTime  = 2 * typingTime
)

// attachTerminal connects a client with a command's terminal. When the client
// leaves, the command goes on.
func (h commandRoutes) attachTerminal(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	id := c.Path["command"]
	return lending.WatchCommands(r.Context(), h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Look(ctx, id)
		if err != nil {
			return err
		}
		if !command.Terminal {
			return sdk.Errorf(sdk.CodeConflict, "the command has no terminal")
		}
		conn, err := rest.AcceptWebSocket(w, r, client.TerminalProtocol)
		if err != nil {
			return lending.Unheard{Err: err}
		}
		defer conn.CloseNow()
		conn.SetReadLimit(maxFrame)
		t := &terminalSession{commands: commands, id: id, conn: conn, next: c.Query.Integer("stdout_offset", 0)}
		return t.serve(ctx, c.RequestID)
	})
}

// terminalSession is one client at a terminal.
type terminalSession struct {
	commands lending.Commands
	id       string
	conn     *websocket.Conn
	next     int64 // offset of the byte to show next
}

// serve returns when the command has ended or the client has left.
func (t *terminalSession) serve(ctx context.Context, requestID string) error {
	ctx, leave := context.WithCancel(ctx)
	var sides sync.WaitGroup
	defer sides.Wait()
	defer leave()
	sides.Go(func() {
		defer leave()
		t.typeIn(ctx)
	})
	sides.Go(func() {
		defer leave()
		t.ping(ctx)
	})
	req := sdk.ReadCommandRequest{CommandID: t.id, StdoutOffset: t.next, Follow: true}
	command, err := t.commands.Read(ctx, req, func(piece sdk.CommandOutput) error { return t.show(ctx, piece) })
	switch {
	case ctx.Err() != nil: // the client has left, or the broker stops
		_ = t.conn.Close(websocket.StatusGoingAway, "")
		return nil
	case err != nil:
		if _, unheard := errors.AsType[lending.Unheard](err); unheard {
			return nil
		}
		err = t.commands.Lease.Fault(ctx, err)
		p, _ := problem(err, requestID).Body.(*client.Problem)
		_ = t.tell(ctx, client.TerminalMessage{Error: p})
		_ = t.conn.Close(websocket.StatusInternalError, string(sdk.CodeOf(err)))
		return nil
	}
	done := commandOf(command)
	if err := t.tell(ctx, client.TerminalMessage{Done: &done}); err == nil {
		_ = t.conn.Close(websocket.StatusNormalClosure, fmt.Sprintf("%s, exit code %d", command.State, command.ExitCode))
	}
	return nil
}

// show sends a piece of output. A slow client delays nobody but itself.
func (t *terminalSession) show(ctx context.Context, piece sdk.CommandOutput) error {
	if lost := piece.Offset - t.next; lost > 0 {
		if err := t.tell(ctx, client.TerminalMessage{Lost: lost}); err != nil {
			return lending.Unheard{Err: err}
		}
	}
	t.next = piece.Offset + int64(len(piece.Data))
	if err := t.conn.Write(ctx, websocket.MessageBinary, piece.Data); err != nil {
		return lending.Unheard{Err: err}
	}
	return nil
}

func (t *terminalSession) tell(ctx context.Context, message client.TerminalMessage) error {
	encoded, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return t.conn.Write(ctx, websocket.MessageText, encoded)
}

// typeIn passes on what the client sends until it leaves or breaks the rules.
func (t *terminalSession) typeIn(ctx context.Context) {
	for {
		kind, frame, err := t.conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageText {
			err = t.obey(ctx, frame)
		} else {
			err = t.write(ctx, frame)
		}
		if err != nil {
			_ = t.conn.Close(websocket.StatusPolicyViolation, err.Error())
			return
		}
	}
}

// obey does what a text frame asks for.
func (t *terminalSession) obey(ctx context.Context, frame []byte) error {
	var message client.TerminalMessage
	if json.Unmarshal(frame, &message) != nil || message.Resize == nil || !possible(*message.Resize) {
		return errors.New(`a text frame must be {"resize": {"rows": 24, "columns": 80}}`)
	}
	_ = t.commands.Resize(ctx, t.id, terminalSize(*message.Resize)) // it may have ended, which is told otherwise
	return nil
}

func possible(size client.TerminalSize) bool {
	const most = 1<<16 - 1
	return 1 <= size.Rows && size.Rows <= most && 1 <= size.Columns && size.Columns <= most
}

// write types. What a program leaves unread for too long is dropped with the
// connection, as the client would wait for ever.
func (t *terminalSession) write(ctx context.Context, typed []byte) error {
	patience, cancel := context.WithTimeout(ctx, typingTime)
	defer cancel()
	err := t.commands.Write(patience, t.id, typed, false)
	if lending.RanOut(ctx, patience, err) {
		return errors.New("the program does not read what is typed")
	}
	return nil // the command may have ended, which is told otherwise
}

// ping notices a client that is gone without saying so.
func (t *terminalSession) ping(ctx context.Context) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		within, cancel := context.WithTimeout(ctx, pingTime)
		err := t.conn.Ping(within)
		cancel()
		if err != nil {
			return
		}
	}
}
