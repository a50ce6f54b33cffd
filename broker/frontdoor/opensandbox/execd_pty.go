package opensandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerTerminals registers the routes of terminals.
func (d execd) registerTerminals(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/pty"}, d.createTerminal)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/pty/{session}"}, d.terminalStatus)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/pty/{session}"}, d.deleteTerminal)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/pty/{session}/ws", Query: []rest.Parameter{
		{Name: "since", Kind: rest.Integer}, {Name: "pty"}, {Name: "takeover"},
	}}, d.attachTerminal)
}

// terminalBody is what makes a terminal.
type terminalBody struct {
	Cwd string `json:"cwd"`
	// Command runs in the terminal instead of a shell that asks for commands.
	Command string `json:"command"`
}

// request is the provider's form of it, without the directory. The shell reads no files of
// settings, as OpenSandbox's does not.
func (b terminalBody) request() sdk.CommandRequest {
	req := sdk.CommandRequest{
		Argv:     []string{"bash", "--norc", "--noprofile"},
		Terminal: &sdk.TerminalSize{Rows: 24, Columns: 80}, // the client's first frame may say another
	}
	if b.Command != "" {
		req.Argv = append(req.Argv, "-c", b.Command)
	}
	return req
}

// createTerminal starts a shell at once, and not when its first client comes as
// OpenSandbox does: what it is to run would have to be kept until then.
func (d execd) createTerminal(ctx context.Context, c rest.Call[rest.Raw]) (int, session, error) {
	var body terminalBody
	if len(bytes.TrimSpace(c.Body)) > 0 {
		if err := readObject(c.Body, &body); err != nil {
			return 0, session{}, err
		}
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, session{}, err
	}
	id, err := d.startTerminal(ctx, c.Tenant, info, body)
	return http.StatusCreated, session{id}, err
}

// startTerminal starts a program at a terminal and returns the ID of its session, which
// is that of the command.
func (d execd) startTerminal(ctx context.Context, who tenant.Tenant, info instance.Info, body terminalBody) (id string, err error) {
	req := body.request()
	err = lending.WithCommands(ctx, d.instances, who, info.ID.String(), func(ctx context.Context, commands lending.Commands) (err error) {
		if req.Cwd, err = resolveCwd(ctx, commands, body.Cwd, nil); err != nil {
			return err
		}
		command, err := commands.Start(ctx, req, lending.StartOptions{})
		id = command.ID
		return err
	})
	return id, err
}

// lookAtTerminal returns the command of a session. One that was deleted is not known any
// more, and neither are commands without a terminal.
func lookAtTerminal(ctx context.Context, commands lending.Commands, id string) (sdk.Command, error) {
	command, err := commands.Look(ctx, id)
	if err != nil {
		return sdk.Command{}, err
	}
	if killed := command.State == sdk.CommandCancelled && command.ExitCode == exitKilled; !command.Terminal || killed {
		return sdk.Command{}, sdk.Errorf(sdk.CodeNotFound, "There is no such terminal.")
	}
	return command, nil
}

// exitKilled is the exit code of what SIGKILL has ended.
const exitKilled = 128 + 9

// terminalState is what is known of a terminal.
type terminalState struct {
	ID        string `json:"session_id"`
	Running   bool   `json:"running"`
	Offset    int64  `json:"output_offset"`
	Attempted bool   `json:"launch_attempted"`
}

func (d execd) terminalStatus(ctx context.Context, c rest.Call[rest.None]) (int, terminalState, error) {
	var state terminalState
	err := d.withTerminal(ctx, c, func(_ context.Context, _ lending.Commands, command sdk.Command) error {
		state = terminalState{command.ID, command.State == sdk.CommandRunning, command.StdoutBytes, true}
		return nil
	})
	return http.StatusOK, state, err
}

// killedWithin is how long a program may take to be gone after it was killed.
const killedWithin = 10 * time.Second

// deleteTerminal ends what runs at a terminal.
func (d execd) deleteTerminal(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusOK, rest.None{}, d.withTerminal(ctx, c, func(ctx context.Context, commands lending.Commands, command sdk.Command) error {
		err := commands.Kill(ctx, command.ID)
		if err == nil {
			_, err = commands.Wait(ctx, command.ID, killedWithin)
		}
		return err
	})
}

func (d execd) withTerminal(ctx context.Context, c rest.Call[rest.None], use func(context.Context, lending.Commands, sdk.Command) error) error {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	return lending.WithCommands(ctx, d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		command, err := lookAtTerminal(ctx, commands, c.Path["session"])
		if err != nil {
			return err
		}
		return use(ctx, commands, command)
	})
}

// attachTerminal connects the one client that a terminal has at a time. When it leaves,
// the program goes on.
func (d execd) attachTerminal(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	since := c.Query.Integer("since", 0)
	for _, name := range []string{"pty", "takeover"} {
		if value := c.Query.Text(name); c.Query.Given(name) && value != "0" && value != "1" {
			return refused(name, "must be 0 or 1")
		}
	}
	if c.Query.Text("pty") == "0" {
		return refused("pty", "must be 1: a session has a terminal from its start on")
	}
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	return lending.WatchCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		command, err := lookAtTerminal(ctx, commands, c.Path["session"])
		if err != nil {
			return err
		}
		at := terminal{info.ID.String(), command.ID}
		// What has ended is shown to whoever asks: the client that saw the end may come
		// again before it has gone.
		mine, held, came := &seat{}, (*seat)(nil), d.seats.arrive()
		if command.State == sdk.CommandRunning {
			mine, held = d.seats.take(at, came)
		}
		if mine == nil && c.Query.Text("takeover") != "1" {
			return sdk.Errorf(sdk.CodeConflict, "Another client is connected to this terminal. With takeover=1 it has to go.")
		}
		// Nobody has to go for a client that does not come.
		conn, err := rest.AcceptWebSocket(w, r)
		if err != nil {
			if mine != nil {
				d.seats.leave(at, mine)
			}
			return lending.Unheard{Err: err}
		}
		defer conn.CloseNow()
		frames := &terminalFrames{commands: commands, conn: conn, id: command.ID, next: min(since, command.StdoutBytes), replayed: command.StdoutBytes}
		if mine == nil {
			mine, held = d.seats.takeOver(ctx, at, came, held)
			if mine == nil && held.came > came {
				_ = conn.Close(closeTakenOver, codeTakenOver)
				return nil
			}
			if mine == nil {
				_ = frames.tell(ctx, serverFrame{Type: frameError, Code: codeConnected, Error: "The client that is connected to this terminal does not go."})
				_ = conn.Close(websocket.StatusTryAgainLater, codeConnected)
				return nil
			}
		}
		defer d.seats.leave(at, mine)
		sit(ctx, mine, conn, func(ctx context.Context) {
			if frames.next == frames.replayed && frames.connect(ctx) != nil {
				return
			}
			commands.ServeTerminal(ctx, conn, command.ID, frames.next, frames)
		})
		return nil
	})
}

const (
	// closeTakenOver and codeTakenOver tell a client that another one has its place, so
	// that it does not come back at once.
	closeTakenOver websocket.StatusCode = 4001
	codeTakenOver                       = "TAKEN_OVER"
	codeConnected                       = "ALREADY_CONNECTED"
	// goingTime is how long a client may take to go when another has its place, and
	// takingTime how long that one waits for it.
	goingTime  = 2 * time.Second
	takingTime = 10 * time.Second
)

// sit lets a client use its seat until it loses it.
func sit(ctx context.Context, s *seat, conn *websocket.Conn, use func(context.Context)) {
	ctx, leave := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.lost:
			// A client that reads nothing would keep the seat.
			defer time.AfterFunc(goingTime, leave).Stop()
			_ = conn.Close(closeTakenOver, codeTakenOver)
		}
	})
	defer watch.Wait()
	defer leave()
	use(ctx)
}

// seats are the clients at the terminals, one at each. They end with their connections,
// and these with the broker.
type seats struct {
	came  atomic.Int64
	mu    sync.Mutex
	taken map[terminal]*seat
}

// terminal is a command of an instance.
type terminal struct{ instance, command string }

// seat is the place of one client.
type seat struct {
	came int64
	lost chan struct{} // closed when the client has to go
	free chan struct{} // closed when it has gone
	once sync.Once
}

// arrive says when a client comes, as a number: who waits for a seat does not take it from who
// came later.
func (s *seats) arrive() int64 { return s.came.Add(1) }

// take returns a seat for who comes, or else that of who is there.
func (s *seats) take(at terminal, came int64) (mine, held *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held = s.taken[at]; held != nil {
		return nil, held
	}
	if s.taken == nil {
		s.taken = map[terminal]*seat{}
	}
	mine = &seat{came: came, lost: make(chan struct{}), free: make(chan struct{})}
	s.taken[at] = mine
	return mine, nil
}

// takeOver has who is there go, and returns a seat; or nil, and that of who stays, if that
// takes too long, or if a client has it that came later.
func (s *seats) takeOver(ctx context.Context, at terminal, came int64, held *seat) (mine, stays *seat) {
	ctx, cancel := context.WithTimeout(ctx, takingTime)
	defer cancel()
	for held != nil && held.came < came {
		held.once.Do(func() { close(held.lost) })
		select {
		case <-held.free:
		case <-ctx.Done():
			return nil, held
		}
		mine, held = s.take(at, came)
	}
	return mine, held
}

// leave gives a seat back that was taken.
func (s *seats) leave(at terminal, mine *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[at] == mine {
		delete(s.taken, at)
		close(mine.free)
	}
}

// The first byte of a binary frame says what the others are. A replay has the offset of
// its first byte between, in eight bytes with the highest first.
const (
	binaryStdin  = 0
	binaryStdout = 1
	binaryReplay = 3
)

// The types of frames of text.
const (
	frameStdin     = "stdin"
	frameResize    = "resize"
	frameSignal    = "signal"
	framePing      = "ping"
	framePong      = "pong"
	frameConnected = "connected"
	frameExit      = "exit"
	frameError     = "error"
)

// serverFrame is a frame of text for the client.
type serverFrame struct {
	Type      string `json:"type"`
	SessionID string `json:"session_id,omitempty"`
	Mode      string `json:"mode,omitempty"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Code      string `json:"code,omitempty"`
	Error     string `json:"error,omitempty"`
}

// clientFrame is what a client wants.
type clientFrame struct {
	kind   string // one of the types
	typed  []byte // of frameStdin
	size   sdk.TerminalSize
	signal string
}

// signals are those that OpenSandbox's terminals know.
var signals = []string{"SIGINT", "SIGTERM", "SIGKILL", "SIGQUIT", "SIGHUP"}

// readFrame reads a frame of the client. Its error says what is wrong with that.
func readFrame(kind websocket.MessageType, frame []byte) (clientFrame, error) {
	if kind == websocket.MessageBinary {
		if len(frame) == 0 || frame[0] != binaryStdin {
			return clientFrame{}, errors.New("a binary frame must begin with a byte 0, and what was typed behind it")
		}
		return clientFrame{kind: frameStdin, typed: frame[1:]}, nil
	}
	var text struct {
		Type       string
		Data       string
		Cols, Rows int
		Signal     string
	}
	if err := json.Unmarshal(frame, &text); err != nil {
		return clientFrame{}, errors.New("a frame of text must be a JSON object with a type, and the fields of that")
	}
	switch text.Type {
	case frameStdin:
		return clientFrame{kind: frameStdin, typed: []byte(text.Data)}, nil
	case frameResize:
		size, ok := lending.TerminalSize(text.Rows, text.Cols)
		if !ok {
			return clientFrame{}, errors.New("cols and rows must be numbers from 1 to 65535")
		}
		return clientFrame{kind: frameResize, size: size}, nil
	case frameSignal:
		if !slices.Contains(signals, text.Signal) {
			return clientFrame{}, errors.New("signal must be SIGINT, SIGTERM, SIGKILL, SIGQUIT or SIGHUP")
		}
		return clientFrame{kind: frameSignal, signal: text.Signal}, nil
	case framePing:
		return clientFrame{kind: framePing}, nil
	}
	return clientFrame{}, errors.New("type must be stdin, resize, signal or ping")
}

// terminalFrames are what is said to the client at a terminal: what it has missed, that it
// is connected, and what comes then.
type terminalFrames struct {
	commands lending.Commands
	conn     *websocket.Conn
	id       string
	next     int64 // offset of the byte to show next
	// replayed is the offset behind what the client has missed.
	replayed  int64
	connected bool
}

var _ lending.TerminalFrames = (*terminalFrames)(nil)

// Show implements lending.TerminalFrames.
func (t *terminalFrames) Show(ctx context.Context, piece sdk.CommandOutput) error {
	if missed := t.replayed - piece.Offset; missed > 0 {
		data := piece.Data[:min(missed, int64(len(piece.Data)))]
		if err := t.replay(ctx, piece.Offset, data); err != nil {
			return err
		}
		piece.Offset += int64(len(data))
		piece.Data = piece.Data[len(data):]
	}
	if piece.Offset < t.replayed {
		return nil
	}
	if err := t.connect(ctx); err != nil || len(piece.Data) == 0 {
		return err
	}
	if piece.Offset > t.next { // by its offset the client learns how much is lost
		return t.replay(ctx, piece.Offset, piece.Data)
	}
	t.next = piece.Offset + int64(len(piece.Data))
	return t.conn.Write(ctx, websocket.MessageBinary, append([]byte{binaryStdout}, piece.Data...))
}

func (t *terminalFrames) replay(ctx context.Context, offset int64, data []byte) error {
	t.next = offset + int64(len(data))
	frame := binary.BigEndian.AppendUint64([]byte{binaryReplay}, uint64(offset))
	return t.conn.Write(ctx, websocket.MessageBinary, append(frame, data...))
}

// connect tells, once, that what comes is new.
func (t *terminalFrames) connect(ctx context.Context) error {
	if t.connected {
		return nil
	}
	t.connected = true
	return t.tell(ctx, serverFrame{Type: frameConnected, SessionID: t.id, Mode: "pty"})
}

// End implements lending.TerminalFrames.
func (t *terminalFrames) End(ctx context.Context, command sdk.Command, err error) {
	if err != nil {
		r := rest.RefusalOf(err, "")
		_ = t.tell(ctx, serverFrame{Type: frameError, Code: string(r.Code), Error: r.Detail})
		_ = t.conn.Close(websocket.StatusInternalError, string(r.Code))
		return
	}
	if t.connect(ctx) == nil && t.tell(ctx, serverFrame{Type: frameExit, ExitCode: &command.ExitCode}) == nil {
		_ = t.conn.Close(websocket.StatusNormalClosure, "process exited")
	}
}

// Obey implements lending.TerminalFrames. A frame that says nothing is answered, and ends
// nothing.
func (t *terminalFrames) Obey(ctx context.Context, kind websocket.MessageType, frame []byte) error {
	wanted, err := readFrame(kind, frame)
	if err != nil {
		return t.tell(ctx, serverFrame{Type: frameError, Code: "INVALID_FRAME", Error: err.Error()})
	}
	// What has ended meanwhile is told otherwise.
	switch wanted.kind {
	case frameStdin:
		if len(wanted.typed) == 0 {
			return nil
		}
		if err := t.commands.Type(ctx, t.id, wanted.typed); err != nil {
			_ = t.tell(ctx, serverFrame{Type: frameError, Code: "STDIN_WRITE_FAILED", Error: err.Error()})
			return err
		}
	case frameResize:
		_ = t.commands.Resize(ctx, t.id, wanted.size)
	case frameSignal:
		_ = t.commands.Signal(ctx, t.id, wanted.signal)
	case framePing:
		return t.tell(ctx, serverFrame{Type: framePong})
	}
	return nil
}

// tell may be called by several at once, as all writes to the connection may.
func (t *terminalFrames) tell(ctx context.Context, frame serverFrame) error {
	encoded, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	return t.conn.Write(ctx, websocket.MessageText, encoded)
}
