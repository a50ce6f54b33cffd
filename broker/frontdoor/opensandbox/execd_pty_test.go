package opensandbox_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
)

// late is long enough for whatever comes.
const late = time.Minute

// terminal makes one and returns its session.
func (f *fixture) terminal(body string) string {
	f.t.Helper()
	var made struct {
		ID string `json:"session_id"`
	}
	f.execd(http.MethodPost, "/pty", body).wants(http.StatusCreated).decode(&made)
	return made.ID
}

type terminalStatus struct {
	ID        string `json:"session_id"`
	Running   bool   `json:"running"`
	Offset    int64  `json:"output_offset"`
	Attempted bool   `json:"launch_attempted"`
}

func (f *fixture) terminalStatus(id string) (s terminalStatus) {
	f.t.Helper()
	f.execd(http.MethodGet, "/pty/"+id, "").wants(http.StatusOK).decode(&s)
	return s
}

// seat is a client at a terminal.
type seat struct {
	t    *testing.T
	conn *websocket.Conn
	// offset of the next byte, as the frames tell.
	offset int64
	shown  bytes.Buffer
}

// said is a frame of text.
type said struct {
	Type     string
	ID       string `json:"session_id"`
	Mode     string
	ExitCode *int `json:"exit_code"`
	Code     string
	Error    string
}

func (f *fixture) dial(path string, headers ...string) (*websocket.Conn, *http.Response, error) {
	f.t.Helper()
	header, protocols := http.Header{}, []string(nil)
	for _, one := range headers {
		name, value, _ := strings.Cut(one, ": ")
		if name == "Sec-WebSocket-Protocol" {
			protocols = []string{value}
			continue
		}
		header.Set(name, value)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), late)
	defer cancel()
	return websocket.Dial(ctx, "ws://"+f.address+"/opensandbox"+path, &websocket.DialOptions{HTTPHeader: header, Subprotocols: protocols})
}

// sit connects with a terminal.
func (f *fixture) sit(id, query string) *seat {
	f.t.Helper()
	conn, _, err := f.dial(f.endpoint+"/pty/"+id+"/ws"+query, "X-EXECD-ACCESS-TOKEN: "+f.token) //nolint:bodyclose // Dial has read it
	assert.NilError(f.t, err)
	f.t.Cleanup(func() { _ = conn.CloseNow() })
	return &seat{t: f.t, conn: conn}
}

// next reads a frame: what is shown is added to that, and what is said returned.
func (s *seat) next() (*said, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), late)
	defer cancel()
	kind, frame, err := s.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	if kind == websocket.MessageText {
		told := &said{}
		return told, json.Unmarshal(frame, told)
	}
	switch {
	case len(frame) > 1 && frame[0] == 1:
		frame = frame[1:]
	case len(frame) > 9 && frame[0] == 3:
		s.offset = int64(binary.BigEndian.Uint64(frame[1:9]))
		frame = frame[9:]
	default:
		return nil, fmt.Errorf("no such frame: %q", frame)
	}
	s.offset += int64(len(frame))
	s.shown.Write(frame)
	return nil, nil //nolint:nilnil // it has only shown something
}

// hears reads until something of a type is said.
func (s *seat) hears(kind string) said {
	s.t.Helper()
	for {
		told, err := s.next()
		assert.NilError(s.t, err, "no %s after %d bytes", kind, s.shown.Len())
		if told != nil {
			assert.Equal(s.t, told.Type, kind, "%+v", *told)
			return *told
		}
	}
}

// sees reads until a text was shown.
func (s *seat) sees(text string) {
	s.t.Helper()
	for from := 0; ; { // what was looked through is not looked through again: it may be much
		shown := s.shown.Bytes()
		if bytes.Contains(shown[max(0, from-len(text)):], []byte(text)) {
			return
		}
		from = len(shown)
		told, err := s.next()
		assert.NilError(s.t, err, "no %q at the end of %q", text, shown[max(0, from-1000):])
		assert.Assert(s.t, told == nil, "%+v", told)
	}
}

// closed reads until the connection is closed.
func (s *seat) closed(code websocket.StatusCode, reason string) {
	s.t.Helper()
	for {
		if _, err := s.next(); err != nil {
			assert.Check(s.t, is.Equal(websocket.CloseStatus(err), code), "%v", err)
			assert.Check(s.t, is.ErrorContains(err, reason))
			return
		}
	}
}

func (s *seat) types(text string) {
	s.t.Helper()
	assert.NilError(s.t, s.conn.Write(s.t.Context(), websocket.MessageBinary, append([]byte{0}, text...)))
}

func (s *seat) says(text string) {
	s.t.Helper()
	assert.NilError(s.t, s.conn.Write(s.t.Context(), websocket.MessageText, []byte(text)))
}

func TestAShellAtATerminal(t *testing.T) {
	f := start(t)
	f.write("workspace/in/x", "")
	id := f.terminal(`{"cwd": "/workspace/in"}`)
	s := f.sit(id, "")
	assert.DeepEqual(t, s.hears("connected"), said{Type: "connected", ID: id, Mode: "pty"})
	s.types("stty size; ls; echo re\"ady\"\n")
	// Before it asks, readline sets the size of the terminal to what it has just read: one that
	// comes in between is lost. It asks when pasted text is to be marked.
	s.sees("24 80\r\nx\r\nready\r\n\x1b[?2004h")
	s.says(`{"type": "resize", "cols": 100, "rows": 50}`)
	s.says(`{"type": "stdin", "data": "stty size\n"}`)
	s.sees("50 100\r\n")
	s.says(`{"type": "ping"}`)
	s.hears("pong")
	s.types("exit 3\n")
	assert.Equal(t, *s.hears("exit").ExitCode, 3)
	s.closed(websocket.StatusNormalClosure, "process exited")
	state := f.terminalStatus(id)
	assert.Equal(t, state, terminalStatus{ID: id, Offset: s.offset, Attempted: true})

	// What has ended is shown as it was.
	again := f.sit(id, "?since=0&pty=1&takeover=0")
	again.hears("connected")
	assert.Equal(t, again.shown.String(), s.shown.String())
	assert.Equal(t, *again.hears("exit").ExitCode, 3)
	again.closed(websocket.StatusNormalClosure, "process exited")
}

func TestASignalReachesWhatRunsAtATerminal(t *testing.T) {
	f := start(t)
	s := f.sit(f.terminal(`{"command": "trap 'echo caught; exit 5' TERM; echo set; while true; do sleep 1000 & wait $!; done"}`), "")
	s.hears("connected")
	s.sees("set\r\n")
	s.says(`{"type": "signal", "signal": "SIGTERM"}`)
	s.sees("caught\r\n")
	assert.Equal(t, *s.hears("exit").ExitCode, 5)
}

func TestATerminalGoesOnWithoutItsClient(t *testing.T) {
	f := start(t)
	id := f.terminal("")
	s := f.sit(id, "")
	s.hears("connected")
	s.types("X=kept; echo a\"way\"\n")
	s.sees("away\r\n")
	assert.NilError(t, s.conn.Close(websocket.StatusNormalClosure, ""))
	state := f.terminalStatus(id)
	assert.Check(t, state.Running && state.Offset >= s.offset, "%+v", state)

	// A client that knows all but the last bytes gets these, before it is connected.
	last := s.shown.String()[s.shown.Len()-4:]
	s = f.sit(id, "?takeover=1&since="+strconv.FormatInt(s.offset-4, 10))
	s.hears("connected")
	assert.Check(t, strings.HasPrefix(s.shown.String(), last), "%q after %q", s.shown.String(), last)
	s.types("echo $X\n")
	s.sees("kept\r\n")

	// One that knows more than there is, nothing.
	s = f.sit(id, "?takeover=1&since=9223372036854775807")
	s.hears("connected")
	assert.Check(t, !strings.Contains(s.shown.String(), "kept"))
	s.types("echo $X\n")
	s.sees("kept\r\n")
}

func TestOffsetsTellWhatIsLost(t *testing.T) {
	f := start(t)
	id := f.terminal(`{"command": "seq 100000; echo end; exec sleep 1000"}`)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if got := f.terminalStatus(id).Offset; got != 688895+5 { // with a carriage return in each line
			return poll.Continue("%d bytes", got)
		}
		return poll.Success()
	}, poll.WithTimeout(late))
	s := f.sit(id, "?since=7")
	s.hears("connected")
	assert.Equal(t, s.offset, int64(688895+5))
	assert.Check(t, s.shown.Len() < 688895-7, "the oldest is not kept")
	assert.Check(t, strings.HasSuffix(s.shown.String(), "\r\n99999\r\n100000\r\nend\r\n"))
}

func TestATerminalHasOneClient(t *testing.T) {
	f := start(t)
	id := f.terminal(`{}`)
	token, path := "X-EXECD-ACCESS-TOKEN: "+f.token, f.endpoint+"/pty/"+id+"/ws"
	first := f.sit(id, "")
	first.hears("connected")
	first.types("X=sa\"me\"; echo fi\"rst\"\n")
	first.sees("first\r\n")

	_, resp, err := f.dial(path, token) //nolint:bodyclose // Dial has read it
	assert.Check(t, err != nil)
	assert.Equal(t, resp.StatusCode, http.StatusConflict)
	// Who does not speak WebSocket takes nobody's place.
	f.execd(http.MethodGet, "/pty/"+id+"/ws", "").refuses(http.StatusConflict, "SB014")
	f.execd(http.MethodGet, "/pty/"+id+"/ws?takeover=1", "").refuses(http.StatusBadRequest, "SB010")
	first.types("echo sti\"ll\"\n")
	first.sees("still\r\n")

	second := f.sit(id, "?takeover=1")
	first.closed(4001, "TAKEN_OVER")
	second.hears("connected")
	assert.Check(t, is.Contains(second.shown.String(), "first\r\n"))
	second.types("echo $X\n")
	second.sees("same\r\n")
	second.types("yes\n")
	second.sees("y\r\ny\r\n") // what interrupts a shell that has not begun it yet ends nothing

	// A client that reads nothing any more has to go too.
	third := f.sit(id, "?takeover=1&since=9223372036854775807")
	third.hears("connected")
	third.types("\x03")
	third.sees("$ ") // until then the shell may throw away what is typed
	third.types("echo do\"ne\"\n")
	third.sees("done\r\n")

	// A place is free when its client has left.
	assert.NilError(t, third.conn.Close(websocket.StatusNormalClosure, ""))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		conn, resp, err := f.dial(path, token) //nolint:bodyclose // Dial has read it
		switch {
		case err == nil:
			return poll.Success()
		case resp == nil || resp.StatusCode != http.StatusConflict:
			return poll.Error(err)
		}
		_ = conn
		return poll.Continue("%v", err)
	}, poll.WithTimeout(late))
}

func TestManyWantOneTerminal(t *testing.T) {
	f := start(t)
	id := f.terminal(`{}`)
	const all = 4
	ends := make(chan error, all)
	for range all {
		go func() {
			conn, _, err := f.dial(f.endpoint+"/pty/"+id+"/ws?takeover=1", "X-EXECD-ACCESS-TOKEN: "+f.token) //nolint:bodyclose // Dial has read it
			for err == nil {
				_, _, err = conn.Read(t.Context())
			}
			ends <- err
		}()
	}
	for range all - 1 { // the last one stays
		err := <-ends
		assert.Check(t, is.Equal(websocket.CloseStatus(err), websocket.StatusCode(4001)), "%v", err)
	}
	last := f.sit(id, "?takeover=1")
	assert.Check(t, is.Equal(websocket.CloseStatus(<-ends), websocket.StatusCode(4001)))
	last.types("echo o\"ne\"\n")
	last.hears("connected")
	last.sees("one\r\n")
}

func TestFramesThatSayNothing(t *testing.T) {
	f := start(t)
	s := f.sit(f.terminal(`{"command": "exec sleep 1000"}`), "")
	s.hears("connected")
	for name, frame := range map[string]struct {
		kind websocket.MessageType
		data string
	}{
		"nothing":                 {websocket.MessageBinary, ""},
		"an answer":               {websocket.MessageBinary, "\x01x"},
		"an unknown byte":         {websocket.MessageBinary, "\xffx"},
		"empty text":              {websocket.MessageText, ""},
		"no JSON":                 {websocket.MessageText, "{"},
		"no object":               {websocket.MessageText, "[]"},
		"null":                    {websocket.MessageText, "null"},
		"no type":                 {websocket.MessageText, "{}"},
		"a type of no text":       {websocket.MessageText, `{"type": 1}`},
		"an unknown type":         {websocket.MessageText, `{"type": "connected"}`},
		"a size of nothing":       {websocket.MessageText, `{"type": "resize"}`},
		"a size below nothing":    {websocket.MessageText, `{"type": "resize", "cols": -1, "rows": 24}`},
		"a size that is too much": {websocket.MessageText, `{"type": "resize", "cols": 80, "rows": 65536}`},
		"a size of no number":     {websocket.MessageText, `{"type": "resize", "cols": 1e999, "rows": 24}`},
		"no signal":               {websocket.MessageText, `{"type": "signal"}`},
		"an unknown signal":       {websocket.MessageText, `{"type": "signal", "signal": "SIGSTOP"}`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NilError(t, s.conn.Write(t.Context(), frame.kind, []byte(frame.data)))
			told := s.hears("error")
			assert.Equal(t, told.Code, "INVALID_FRAME")
			assert.Check(t, told.Error != "")
		})
	}
	s.types("")
	s.says(`{"type": "stdin"}`)
	s.says(`{"type": "ping"}`)
	s.hears("pong")
	t.Run("too much at once", func(t *testing.T) {
		_ = s.conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 65<<10))
		s.closed(websocket.StatusMessageTooBig, "")
	})
}

func TestATerminalThatIsDeleted(t *testing.T) {
	f := start(t)
	id := f.terminal(`{"command": "trap '' TERM HUP INT; echo on; sleep 1000"}`)
	s := f.sit(id, "")
	s.hears("connected")
	f.execd(http.MethodDelete, "/pty/"+id, "").wants(http.StatusOK).empty()
	assert.Equal(t, *s.hears("exit").ExitCode, 137)
	s.closed(websocket.StatusNormalClosure, "process exited")
	f.execd(http.MethodGet, "/pty/"+id, "").refuses(http.StatusNotFound, "SB013")
	f.execd(http.MethodDelete, "/pty/"+id, "").refuses(http.StatusNotFound, "SB013")
	f.execd(http.MethodGet, "/pty/"+id+"/ws", "").refuses(http.StatusNotFound, "SB013")
}

func TestTerminalsThatAreRefused(t *testing.T) {
	f := start(t)
	id := f.terminal(`{"command": "exec sleep 1000"}`)
	for name, test := range map[string]struct {
		body, code string
		status     int
	}{
		"no object":             {"[]", "SB010", http.StatusBadRequest},
		"no JSON":               {"{", "SB010", http.StatusBadRequest},
		"a command of no text":  {`{"command": 1}`, "SB010", http.StatusBadRequest},
		"no such directory":     {`{"cwd": "/nowhere"}`, "SB010", http.StatusBadRequest},
		"a directory of no one": {`{"cwd": "$NO"}`, "SB010", http.StatusBadRequest},
		"a NUL":                 {`{"command": "a\u0000b"}`, "SB010", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) { f.execd(http.MethodPost, "/pty", test.body).refuses(test.status, test.code) })
	}
	var command struct{ Text string }
	run := f.execd(http.MethodPost, "/command", `{"command": "exec sleep 1000", "background": true}`).wants(http.StatusOK)
	assert.NilError(t, json.NewDecoder(strings.NewReader(run.text)).Decode(&command))
	for name, test := range map[string]struct {
		path, code string
		status     int
	}{
		"one that is not known":      {"/pty/nonsense/ws", "SB013", http.StatusNotFound},
		"a command without one":      {"/pty/" + command.Text + "/ws", "SB013", http.StatusNotFound},
		"the state of such":          {"/pty/" + command.Text, "SB013", http.StatusNotFound},
		"pipes":                      {"/pty/" + id + "/ws?pty=0", "SB010", http.StatusBadRequest},
		"another mode":               {"/pty/" + id + "/ws?pty=2", "SB010", http.StatusBadRequest},
		"a take-over of no sense":    {"/pty/" + id + "/ws?takeover=yes", "SB010", http.StatusBadRequest},
		"an offset below nothing":    {"/pty/" + id + "/ws?since=-1", "SB010", http.StatusBadRequest},
		"an offset of no number":     {"/pty/" + id + "/ws?since=x", "SB010", http.StatusBadRequest},
		"what is no handshake":       {"/pty/" + id + "/ws", "SB010", http.StatusBadRequest},
		"what is none, from nowhere": {"/pty/" + id + "/ws?since=0", "SB010", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) { f.execd(http.MethodGet, test.path, "").refuses(test.status, test.code) })
	}
	for name, test := range map[string]struct {
		headers []string
		status  int
	}{
		"nobody":         {nil, http.StatusUnauthorized},
		"a wrong token":  {[]string{"X-EXECD-ACCESS-TOKEN: " + strings.Repeat("0", 40)}, http.StatusNotFound},
		"another tenant": {[]string{"OPEN-SANDBOX-API-KEY: umbrella-token"}, http.StatusNotFound},
		"another origin": {[]string{"X-EXECD-ACCESS-TOKEN: " + f.token, "Origin: https://elsewhere.example"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			_, resp, err := f.dial(f.endpoint+"/pty/"+id+"/ws", test.headers...) //nolint:bodyclose // Dial has read it
			assert.Check(t, err != nil)
			assert.Check(t, is.Equal(resp.StatusCode, test.status))
		})
	}
	f.sit(id, "").hears("connected") // nobody of these has taken the place
}

func TestAProviderWithoutTerminals(t *testing.T) {
	for name, without := range map[string]func(*box){
		"but with commands": func(b *box) {
			b.commands = localcommands.New(localcommands.Options{Check: func(string) error { return nil }, Start: b.programs.Start})
		},
		"and without commands": func(b *box) { b.Capabilities = []sdk.Capability{sdk.CapabilityFiles} },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, without)
			f.execd(http.MethodPost, "/pty", "{}").refuses(http.StatusNotImplemented, "SB015")
		})
	}
}

// DialPort implements sdk.Ports.
func (s served) DialPort(ctx context.Context, _ string, port uint16) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

func TestAWebSocketReachesTheUsersProgram(t *testing.T) {
	f := start(t, func(b *box) { b.Capabilities = append(b.Capabilities, sdk.CapabilityPorts) })
	seen := make(chan *http.Request, 1)
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		seen <- r
		kind, frame, err := conn.Read(r.Context())
		for ; err == nil; kind, frame, err = conn.Read(r.Context()) {
			if err := conn.Write(r.Context(), kind, frame); err != nil {
				return
			}
		}
	}))
	defer program.Close()
	_, port, _ := net.SplitHostPort(program.Listener.Addr().String())
	for _, mount := range []string{"", "/v1"} {
		path := mount + "/sandboxes/" + f.sandbox + "/proxy/" + port + "/a/b?c=d"
		_, resp, err := f.dial(path) //nolint:bodyclose // Dial has read it
		assert.Check(t, err != nil)
		assert.Equal(t, resp.StatusCode, http.StatusUnauthorized)
		conn, resp, err := f.dial(path, "X-EXECD-ACCESS-TOKEN: "+f.token, "OPEN-SANDBOX-API-KEY: acme-token", "Sec-WebSocket-Protocol: echo") //nolint:bodyclose // Dial has read it
		assert.NilError(t, err)
		assert.Equal(t, resp.Header.Get("Sec-WebSocket-Protocol"), "echo")
		got := <-seen
		assert.Equal(t, got.URL.String(), "/a/b?c=d")
		for _, secret := range []string{"X-EXECD-ACCESS-TOKEN", "OPEN-SANDBOX-API-KEY"} {
			assert.Check(t, is.Equal(got.Header.Get(secret), ""))
		}
		for kind, sent := range map[websocket.MessageType]string{websocket.MessageText: "tick", websocket.MessageBinary: "\x00\xff"} {
			assert.NilError(t, conn.Write(t.Context(), kind, []byte(sent)))
			back, frame, err := conn.Read(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, back, kind)
			assert.Equal(t, string(frame), sent)
		}
		assert.NilError(t, conn.Close(websocket.StatusNormalClosure, ""))
	}
}
