package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
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
		from := c.Query.Integer("stdout_offset", 0)
		commands.ServeTerminal(ctx, conn, id, from, &terminalFrames{commands: commands, id: id, conn: conn, next: from, requestID: c.RequestID})
		return nil
	})
}

// terminalFrames are what is said to one client at a terminal.
type terminalFrames struct {
	commands  lending.Commands
	id        string
	conn      *websocket.Conn
	next      int64 // offset of the byte to show next
	requestID string
}

var _ lending.TerminalFrames = (*terminalFrames)(nil)

// Show implements lending.TerminalFrames.
func (t *terminalFrames) Show(ctx context.Context, piece sdk.CommandOutput) error {
	if lost := piece.Offset - t.next; lost > 0 {
		if err := t.tell(ctx, client.TerminalMessage{Lost: lost}); err != nil {
			return err
		}
	}
	t.next = piece.Offset + int64(len(piece.Data))
	return t.conn.Write(ctx, websocket.MessageBinary, piece.Data)
}

// End implements lending.TerminalFrames.
func (t *terminalFrames) End(ctx context.Context, command sdk.Command, err error) {
	if err != nil {
		p, _ := problem(err, t.requestID).Body.(*client.Problem)
		_ = t.tell(ctx, client.TerminalMessage{Error: p})
		_ = t.conn.Close(websocket.StatusInternalError, string(sdk.CodeOf(err)))
		return
	}
	done := commandOf(command)
	if err := t.tell(ctx, client.TerminalMessage{Done: &done}); err == nil {
		_ = t.conn.Close(websocket.StatusNormalClosure, fmt.Sprintf("%s, exit code %d", command.State, command.ExitCode))
	}
}

func (t *terminalFrames) tell(ctx context.Context, message client.TerminalMessage) error {
	encoded, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return t.conn.Write(ctx, websocket.MessageText, encoded)
}

// Obey implements lending.TerminalFrames.
func (t *terminalFrames) Obey(ctx context.Context, kind websocket.MessageType, frame []byte) error {
	if kind == websocket.MessageBinary {
		return t.commands.Type(ctx, t.id, frame)
	}
	var message client.TerminalMessage
	if json.Unmarshal(frame, &message) == nil && message.Resize != nil {
		if size, ok := lending.TerminalSize(message.Resize.Rows, message.Resize.Columns); ok {
			_ = t.commands.Resize(ctx, t.id, size) // it may have ended, which is told otherwise
			return nil
		}
	}
	return errors.New(`a text frame must be {"resize": {"rows": 24, "columns": 80}}`)
}
