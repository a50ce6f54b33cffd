package lending

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// maxFrame bounds what a client of a terminal sends at once, in bytes.
	maxFrame = 64 << 10
	// typingTime is how long a program may leave what was typed unread.
	typingTime = 20 * time.Second
	// pingEvery keeps proxies from taking a silent connection for a dead one;
	// pingTime is how long the answer may take, typing that waits included.
	pingEvery = 20 * time.Second
	pingTime  = 2 * typingTime
)

// TerminalFrames are what an API and a client at a terminal say to each other.
type TerminalFrames interface {
	// Show sends a piece of output. What comes late is not kept for ever: the offset of
	// a piece is above the end of the last one then.
	Show(ctx context.Context, piece sdk.CommandOutput) error
	// Obey does what a frame of the client asks for. An error ends the connection, and
	// is told as the reason.
	Obey(ctx context.Context, kind websocket.MessageType, frame []byte) error
	// End tells of the command when it has ended, or of the error that has come before,
	// and closes the connection.
	End(ctx context.Context, command sdk.Command, err error)
}

// ServeTerminal has a client sit at the terminal of a command, by a WebSocket that was
// accepted. It shows the output from an offset on, and returns when the command has
// ended, the client has left or ctx has ended. The command goes on without its client,
// and a client that is slow delays nobody but itself.
func (c Commands) ServeTerminal(ctx context.Context, conn *websocket.Conn, id string, from int64, frames TerminalFrames) {
	conn.SetReadLimit(maxFrame)
	ctx, leave := context.WithCancel(ctx)
	var sides sync.WaitGroup
	defer sides.Wait()
	defer leave()
	sides.Go(func() {
		defer leave()
		obeyFrames(ctx, conn, frames)
	})
	sides.Go(func() {
		defer leave()
		pingClient(ctx, conn)
	})
	req := sdk.ReadCommandRequest{CommandID: id, StdoutOffset: from, Follow: true}
	command, err := c.Read(ctx, req, func(piece sdk.CommandOutput) error {
		if err := frames.Show(ctx, piece); err != nil {
			return Unheard{err}
		}
		return nil
	})
	if ctx.Err() != nil { // the client has left, or the broker stops
		_ = conn.Close(websocket.StatusGoingAway, "")
		return
	}
	if _, unheard := errors.AsType[Unheard](err); unheard {
		return
	}
	frames.End(ctx, command, c.Lease.Fault(ctx, err))
}

// obeyFrames passes on what the client sends until it leaves or breaks the rules.
func obeyFrames(ctx context.Context, conn *websocket.Conn, frames TerminalFrames) {
	for {
		kind, frame, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if err := frames.Obey(ctx, kind, frame); err != nil {
			_ = conn.Close(websocket.StatusPolicyViolation, err.Error())
			return
		}
	}
}

// Type passes on what was typed at a terminal. A program that leaves it unread for too
// long is an error, as the client would wait for ever; one that has ended is none, which
// is told otherwise.
func (c Commands) Type(ctx context.Context, id string, typed []byte) error {
	patience, cancel := context.WithTimeout(ctx, typingTime)
	defer cancel()
	err := c.Write(patience, id, typed, false)
	if RanOut(ctx, patience, err) {
		return errors.New("the program does not read what is typed")
	}
	return nil
}

// TerminalSize is the size that a client says, in characters, if a terminal can have it.
func TerminalSize(rows, columns int) (size sdk.TerminalSize, ok bool) {
	if rows < 1 || rows > math.MaxUint16 || columns < 1 || columns > math.MaxUint16 {
		return sdk.TerminalSize{}, false
	}
	return sdk.TerminalSize{Rows: uint16(rows), Columns: uint16(columns)}, true
}

// pingClient notices a client that is gone without saying so.
func pingClient(ctx context.Context, conn *websocket.Conn) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		within, cancel := context.WithTimeout(ctx, pingTime)
		err := conn.Ping(within)
		cancel()
		if err != nil {
			return
		}
	}
}
