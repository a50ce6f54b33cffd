package toolbox

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// session is a shell that runs one command after the other. It leaves the exit code of
// each in a file: a command that ends the shell has none, ever.
type session struct {
	id    string
	shell *exec.Cmd
	stdin *os.File
	ended chan struct{} // closed when the session is deleted

	mu       sync.Mutex
	commands []*command
}

// command is one of a session. Its output is collected from two files when somebody looks.
type command struct {
	id, text, dir string
	input         *os.File

	mu     sync.Mutex
	read   [2]int64
	chunks []chunk
}

// chunk is a piece of one of the streams: 0 is stdout.
type chunk struct {
	stream int
	data   []byte
}

var (
	streams = [2]string{"stdout", "stderr"}
	markers = [2]string{"\x01\x01\x01", "\x02\x02\x02"}

	newSession     = shape.Object{Needed: map[string]shape.Shape{"sessionId": some}}
	sessionCommand = shape.Object{
		Needed:   map[string]shape.Shape{"command": some},
		Optional: map[string]shape.Shape{"runAsync": shape.Flag{}, "async": shape.Flag{}, "suppressInputEcho": shape.Flag{}},
	}
	sessionInput = shape.Object{Needed: map[string]shape.Shape{"data": shape.Text{}}}
)

// pollEvery is how often files are looked at.
const pollEvery = 5 * time.Millisecond

// table has things by their IDs.
type table[T any] struct {
	mu  sync.Mutex
	all map[string]T
}

func (t *table[T]) get(kind, id string) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.all[id]
	if !ok {
		return one, &failure{http.StatusNotFound, "NOT_FOUND", kind + " not found"}
	}
	return one, nil
}

// put adds one, unless there is one with its ID.
func (t *table[T]) put(kind, id string, one T) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.all[id]; there {
		return &failure{http.StatusConflict, "CONFLICT", kind + " already exists"}
	}
	if t.all == nil {
		t.all = map[string]T{}
	}
	t.all[id] = one
	return nil
}

func (t *table[T]) take(kind, id string) (T, error) {
	one, err := t.get(kind, id)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, id)
	return one, err
}

func (t *table[T]) sorted() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []T{}
	for _, id := range slices.Sorted(maps.Keys(t.all)) {
		list = append(list, t.all[id])
	}
	return list
}

func (d *daemon) createSession(w http.ResponseWriter, r *http.Request) error {
	var req struct{ SessionID string }
	if err := read(r, newSession, &req); err != nil {
		return err
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	s := &session{id: req.SessionID, shell: exec.Command(shell()), stdin: stdin, ended: make(chan struct{})}
	s.shell.Stdin, s.shell.SysProcAttr = in, &syscall.SysProcAttr{Setpgid: true}
	if err := d.sessions.put("session", req.SessionID, s); err != nil {
		stdin.Close()
		return err
	}
	if err := s.shell.Start(); err != nil {
		return err
	}
	go func() { _ = s.shell.Wait() }()
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (d *daemon) deleteSession(w http.ResponseWriter, r *http.Request) error {
	s, err := d.sessions.take("session", r.PathValue("session"))
	if err != nil {
		return err
	}
	s.stdin.Close()
	_ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) // it may have ended
	close(s.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		c.input.Close()
		_ = os.RemoveAll(c.dir)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *session) object() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	commands := []any{}
	for _, c := range s.commands {
		commands = append(commands, c.object())
	}
	return map[string]any{"sessionId": s.id, "commands": commands}
}

func (c *command) object() map[string]any {
	o := map[string]any{"id": c.id, "command": c.text}
	if code, ended := c.exitCode(); ended {
		o["exitCode"] = code
	}
	return o
}

func (d *daemon) listSessions(w http.ResponseWriter, _ *http.Request) error {
	all := []any{}
	for _, s := range d.sessions.sorted() {
		all = append(all, s.object())
	}
	return answer(w, http.StatusOK, all)
}

func (d *daemon) getSession(w http.ResponseWriter, r *http.Request) error {
	s, err := d.sessions.get("session", r.PathValue("session"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, s.object())
}

// begin has the shell run a command, when it has done with those before it.
func (s *session) begin(text string) (*command, error) {
	dir, err := os.MkdirTemp("", "session")
	if err != nil {
		return nil, err
	}
	c := &command{id: "cmd-" + filepath.Base(dir), text: text, dir: dir}
	pipe := filepath.Join(dir, "input")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		return nil, err
	}
	if c.input, err = os.OpenFile(pipe, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintf(s.stdin, "{\n%s\n} 0<>%[2]s/input >%[2]s/stdout 2>%[2]s/stderr; echo $? >%[2]s/code\n", text, dir); err != nil {
		c.input.Close()
		return nil, fmt.Errorf("failed to write command: write |1: %w", errors.Unwrap(err))
	}
	s.commands = append(s.commands, c)
	return c, nil
}

// exitCode is there when the command has ended.
func (c *command) exitCode() (code int, ended bool) {
	text, err := os.ReadFile(filepath.Join(c.dir, "code"))
	if err != nil || !bytes.HasSuffix(text, []byte("\n")) {
		return 0, false
	}
	code, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return code, err == nil
}

// collect reads what was put out, and returns all of it. Of what came between two looks
// nobody knows the order; what stderr has is first.
func (c *command) collect() []chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stream := range []int{1, 0} {
		text, err := os.ReadFile(filepath.Join(c.dir, streams[stream]))
		if err == nil && int64(len(text)) > c.read[stream] {
			c.chunks = append(c.chunks, chunk{stream, text[c.read[stream]:]})
			c.read[stream] = int64(len(text))
		}
	}
	return slices.Clone(c.chunks)
}

// splitting says what a client gets of the streams.
type splitting int

const (
	merged splitting = iota
	marked
	apart
)

// splitOf goes by the version that a client says it has.
func splitOf(r *http.Request) splitting {
	version := r.Header.Get("X-Daytona-SDK-Version")
	var major, minor int
	switch n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); {
	case strings.Contains(version, "dev"), n == 2 && (major > 0 || minor >= 167):
		return apart
	case n == 2 && minor >= 27, r.Header.Get("X-Daytona-Split-Output") == "true":
		return marked
	}
	return merged
}

// outputs are the members of answers about a command.
func outputs(chunks []chunk, split splitting) map[string]any {
	var all string
	var each [2]string
	for _, c := range chunks {
		if split != merged {
			all += markers[c.stream]
		}
		all += string(c.data)
		each[c.stream] += string(c.data)
	}
	o := map[string]any{"output": all, "stdout": nil, "stderr": nil}
	if split == apart {
		o["stdout"], o["stderr"] = each[0], each[1]
	}
	return o
}

func (d *daemon) sessionExecute(w http.ResponseWriter, r *http.Request) error {
	s, err := d.sessions.get("session", r.PathValue("session"))
	if err != nil {
		return err
	}
	var req struct {
		Command         string
		RunAsync, Async bool
	}
	if err := read(r, sessionCommand, &req); err != nil {
		return err
	}
	c, err := s.begin(req.Command)
	if err != nil {
		return err
	}
	if req.RunAsync || req.Async {
		return answer(w, http.StatusAccepted, map[string]any{"cmdId": c.id, "output": nil, "stdout": nil, "stderr": nil, "exitCode": nil})
	}
	if !s.wait(r, func() bool { _, ended := c.exitCode(); return ended }) {
		return &failure{http.StatusGone, "SESSION_ENDED", "session was deleted"}
	}
	o := outputs(c.collect(), splitOf(r))
	o["cmdId"] = c.id
	o["exitCode"], _ = c.exitCode()
	return answer(w, http.StatusOK, o)
}

// wait looks until something is done. It is not when the session is deleted, or the client
// is gone.
func (s *session) wait(r *http.Request, done func() bool) bool {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-s.ended:
			return false
		case <-r.Context().Done():
			return false
		}
	}
	return true
}

// commandOf is the command that a path names.
func (d *daemon) commandOf(r *http.Request) (*session, *command, error) {
	s, err := d.sessions.get("session", r.PathValue("session"))
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if c.id == r.PathValue("command") {
			return s, c, nil
		}
	}
	return nil, nil, &failure{http.StatusNotFound, "NOT_FOUND", "command not found"}
}

func (d *daemon) getCommand(w http.ResponseWriter, r *http.Request) error {
	_, c, err := d.commandOf(r)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, c.object())
}

func (d *daemon) commandInput(w http.ResponseWriter, r *http.Request) error {
	_, c, err := d.commandOf(r)
	if err != nil {
		return err
	}
	var req struct{ Data string }
	if err := read(r, sessionInput, &req); err != nil {
		return err
	}
	if _, ended := c.exitCode(); ended {
		return &failure{http.StatusGone, "COMMAND_ALREADY_COMPLETED", "command has already completed"}
	}
	if _, err := c.input.WriteString(req.Data); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *daemon) commandLogs(w http.ResponseWriter, r *http.Request) error {
	s, c, err := d.commandOf(r)
	if err != nil {
		return err
	}
	given, err := query(r, "", "follow")
	if err != nil {
		return err
	}
	if given["follow"] == "true" {
		return s.follow(w, r, c)
	}
	split := splitOf(r)
	o := outputs(c.collect(), split)
	if split == apart {
		return answer(w, http.StatusOK, o)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err = fmt.Fprint(w, o["output"])
	return err
}

// frame is the most that a message of followed logs has. It may end within a marker.
const frame = 1024

// follow sends all output, with markers, until the command ends.
func (s *session) follow(w http.ResponseWriter, r *http.Request, c *command) error {
	conn, err := upgrade(w, r)
	if err != nil {
		return nil //nolint:nilerr // it is answered already
	}
	defer conn.CloseNow()
	ctx := conn.CloseRead(r.Context())
	r = r.WithContext(ctx)
	sent := 0
	s.wait(r, func() bool {
		_, ended := c.exitCode() // first, so that nothing comes later
		all := c.collect()
		text := []byte(outputs(all[sent:], marked)["output"].(string))
		sent = len(all)
		for piece := range slices.Chunk(text, frame) {
			if conn.Write(ctx, websocket.MessageBinary, piece) != nil {
				return true
			}
		}
		return ended
	})
	return shut(conn, websocket.StatusNormalClosure, "")
}

// upgrade accepts a WebSocket, by the first of the subprotocols that it knows.
func upgrade(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	options := &websocket.AcceptOptions{InsecureSkipVerify: true}
	for offered := range strings.SplitSeq(r.Header.Get("Sec-Websocket-Protocol"), ",") {
		if offered = strings.TrimSpace(offered); strings.HasPrefix(offered, "X-Daytona-") {
			options.Subprotocols = append(options.Subprotocols, offered)
		}
	}
	return websocket.Accept(w, r, options)
}
