package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
)

// longestTyping is how much the broker takes in one frame, in bytes.
const longestTyping = 32 << 10

// Terminal is a seat at the terminal of a command. One goroutine may receive while
// others type and resize.
type Terminal struct{ conn *websocket.Conn }

// Terminal sits down at the terminal of a command, which must have one. The query may
// have stdout_offset. Who leaves does not end the command.
func (c *Client) Terminal(ctx context.Context, id, command string, query url.Values) (*Terminal, error) {
	target := c.url + below(id, "commands", command, "terminal")
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	header := c.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Authorization", "Bearer "+c.token)
	conn, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header, Subprotocols: []string{TerminalProtocol},
	}) //nolint:bodyclose // Dial has read it
	if err != nil && resp != nil && resp.StatusCode >= http.StatusBadRequest {
		return nil, refusal(resp)
	}
	if err != nil {
		return nil, unanswered("no broker answers", err)
	}
	if conn.Subprotocol() != TerminalProtocol {
		_ = conn.CloseNow()
		return nil, c.stranger()
	}
	conn.SetReadLimit(MaxAnswer / 4)
	return &Terminal{conn: conn}, nil
}

// Receive waits for what is shown next, or for a message of the broker: one of the two is
// there. After a message with Done or Error nothing follows. The end of the connection
// before that is io.ErrUnexpectedEOF.
func (t *Terminal) Receive(ctx context.Context) (shown []byte, message TerminalMessage, err error) {
	kind, frame, err := t.conn.Read(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = errors.Join(io.ErrUnexpectedEOF, err)
		}
		return nil, message, unanswered("the broker's answer broke off", err)
	}
	if kind == websocket.MessageBinary {
		return frame, message, nil
	}
	if err := json.Unmarshal(frame, &message); err != nil {
		return nil, message, fmt.Errorf("the broker's message cannot be read: %w", err)
	}
	return nil, message, nil
}

// Type passes on what was typed.
func (t *Terminal) Type(ctx context.Context, typed []byte) error {
	for len(typed) > 0 {
		part := typed[:min(len(typed), longestTyping)]
		if err := t.conn.Write(ctx, websocket.MessageBinary, part); err != nil {
			return unanswered("the broker listens no more", err)
		}
		typed = typed[len(part):]
	}
	return nil
}

// Resize tells the command the size of the window.
func (t *Terminal) Resize(ctx context.Context, size TerminalSize) error {
	encoded, err := json.Marshal(TerminalMessage{Resize: &size})
	if err != nil {
		return err
	}
	if err := t.conn.Write(ctx, websocket.MessageText, encoded); err != nil {
		return unanswered("the broker listens no more", err)
	}
	return nil
}

// Close leaves the terminal.
func (t *Terminal) Close() error { return t.conn.CloseNow() }
