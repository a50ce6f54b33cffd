package toolbox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pty"
)

// terminal is a shell at a terminal. What it puts out while nobody is connected is lost.
type terminal struct {
	wanted  terminalRequest
	created time.Time

	mu      sync.Mutex
	file    *os.File // nil until it starts
	command *exec.Cmd
	clients map[*websocket.Conn]bool
	// ended is closed behind the last output; then end says how.
	ended chan struct{}
	end   map[string]any
}

type terminalRequest struct {
	ID        string            `json:"id"`
	Cwd       string            `json:"cwd"`
	Envs      map[string]string `json:"envs"`
	Cols      uint16            `json:"cols"`
	Rows      uint16            `json:"rows"`
	LazyStart bool              `json:"lazyStart"`
}

// exitControl is the subprotocol by which a client asks for a message of the exit.
const (
	exitControl  = "X-Daytona-Pty-Exit-Control"
	environments = "X-Daytona-Pty-Envs~"
)

var (
	extent      = shape.Whole{Min: 1, Max: 1000}
	newTerminal = shape.Object{Optional: map[string]shape.Shape{
		"id": some, "cwd": shape.Text{}, "envs": variables, "cols": extent, "rows": extent, "lazyStart": shape.Flag{},
	}}
	newExtent = shape.Object{Needed: map[string]shape.Shape{"cols": extent, "rows": extent}}
)

func (d *daemon) createTerminal(w http.ResponseWriter, r *http.Request) error {
	req := terminalRequest{Cols: 80, Rows: 24, Cwd: d.config.Home}
	if err := read(r, newTerminal, &req); err != nil {
		return err
	}
	t, err := d.openTerminal(req)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, map[string]string{"sessionId": t.wanted.ID})
}

func (d *daemon) openTerminal(req terminalRequest) (*terminal, error) {
	if req.ID == "" {
		req.ID = fmt.Sprint("pty-", time.Now().UnixNano())
	}
	if info, err := os.Stat(req.Cwd); err != nil || !info.IsDir() {
		return nil, badRequest("cwd is no directory")
	}
	t := &terminal{wanted: req, created: time.Now(), clients: map[*websocket.Conn]bool{}, ended: make(chan struct{})}
	if err := d.terminals.put("PTY session", req.ID, t); err != nil {
		return nil, err
	}
	if req.LazyStart {
		return t, nil
	}
	return t, d.startTerminal(t)
}

// startTerminal starts the shell, unless it has started.
func (d *daemon) startTerminal(t *terminal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		return nil
	}
	master, slave, err := pty.Open(t.wanted.Cols, t.wanted.Rows)
	if err != nil {
		return err
	}
	defer slave.Close()
	envs := map[string]string{"TERM": "xterm-256color"}
	maps.Copy(envs, t.wanted.Envs)
	c := exec.Command(shell(), "-i", "-l")
	c.Dir, c.Env = t.wanted.Cwd, environment(envs)
	c.Stdin, c.Stdout, c.Stderr, c.SysProcAttr = slave, slave, slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		master.Close()
		return err
	}
	t.file, t.command = master, c
	go func() {
		t.pump()
		_, _ = d.terminals.take("PTY session", t.wanted.ID) // it may be deleted
	}()
	return nil
}

// pump sends what the terminal shows to who is connected, until the shell has ended. A
// child of it that has the terminal too does not count.
func (t *terminal) pump() {
	exited := make(chan struct{})
	go func() {
		_ = t.command.Wait()
		_ = t.file.SetReadDeadline(time.Now().Add(linger))
		close(exited)
	}()
	piece := make([]byte, 4096)
	for {
		n, err := t.file.Read(piece)
		t.mu.Lock()
		for conn := range t.clients {
			if n > 0 && conn.Write(context.Background(), websocket.MessageBinary, piece[:n]) != nil {
				delete(t.clients, conn)
			}
		}
		t.mu.Unlock()
		if err != nil {
			break
		}
	}
	<-exited
	t.file.Close()
	t.end = map[string]any{"exitCode": t.command.ProcessState.ExitCode()}
	if !t.command.ProcessState.Success() {
		t.end["exitReason"] = t.command.ProcessState.String()
	}
	close(t.ended)
}

func (t *terminal) object() map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]any{
		"id": t.wanted.ID, "cwd": t.wanted.Cwd, "envs": t.wanted.Envs, "cols": t.wanted.Cols, "rows": t.wanted.Rows,
		"lazyStart": t.wanted.LazyStart, "active": t.file != nil, "createdAt": t.created.UTC(),
	}
}

func (d *daemon) listTerminals(w http.ResponseWriter, _ *http.Request) error {
	all := []any{}
	for _, t := range d.terminals.sorted() {
		all = append(all, t.object())
	}
	return answer(w, http.StatusOK, map[string]any{"sessions": all})
}

func (d *daemon) getTerminal(w http.ResponseWriter, r *http.Request) error {
	t, err := d.terminals.get("PTY session", r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, t.object())
}

func (d *daemon) resizeTerminal(w http.ResponseWriter, r *http.Request) error {
	t, err := d.terminals.get("PTY session", r.PathValue("id"))
	if err != nil {
		return err
	}
	var req struct{ Cols, Rows uint16 }
	if err := read(r, newExtent, &req); err != nil {
		return err
	}
	t.mu.Lock()
	t.wanted.Cols, t.wanted.Rows = req.Cols, req.Rows
	if t.file != nil {
		err = pty.Resize(t.file, req.Cols, req.Rows)
	}
	t.mu.Unlock()
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, t.object())
}

func (d *daemon) deleteTerminal(w http.ResponseWriter, r *http.Request) error {
	t, err := d.terminals.take("PTY session", r.PathValue("id"))
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.command != nil {
		_ = syscall.Kill(-t.command.Process.Pid, syscall.SIGKILL) // it may have ended
	}
	return answer(w, http.StatusOK, map[string]string{"message": "PTY session deleted"})
}

// createAndConnect has what it needs in the query, but the environment in a subprotocol.
func (d *daemon) createAndConnect(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "id", "cols rows cwd")
	if err != nil {
		return err
	}
	req := terminalRequest{ID: given["id"], Cols: 80, Rows: 24, Cwd: d.config.Home, LazyStart: true}
	for to, text := range map[*uint16]string{&req.Cols: given["cols"], &req.Rows: given["rows"]} {
		if n, err := strconv.ParseUint(text, 10, 10); text != "" && (err != nil || n == 0) {
			return badRequest("the size is %q", text)
		} else if text != "" {
			*to = uint16(n)
		}
	}
	if given["cwd"] != "" {
		req.Cwd = given["cwd"]
	}
	if _, envs, there := strings.Cut(r.Header.Get("Sec-Websocket-Protocol"), environments); there {
		envs, _, _ = strings.Cut(envs, ",")
		text, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(envs))
		if err != nil || json.Unmarshal(text, &req.Envs) != nil {
			return badRequest("the environment is %q", envs)
		}
	}
	t, err := d.openTerminal(req)
	if err != nil {
		return err
	}
	return d.connect(w, r, t, nil)
}

func (d *daemon) connectTerminal(w http.ResponseWriter, r *http.Request) error {
	t, err := d.terminals.get("PTY session", r.PathValue("id"))
	return d.connect(w, r, t, err)
}

// connect seats a client at a terminal. That there is none is said in the WebSocket.
func (d *daemon) connect(w http.ResponseWriter, r *http.Request, t *terminal, missing error) error {
	conn, err := upgrade(w, r)
	if err != nil {
		return nil //nolint:nilerr // it is answered already
	}
	defer conn.CloseNow()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if missing != nil {
		control(ctx, conn, map[string]any{"status": "error", "error": missing.Error()})
		return shut(conn, websocket.StatusNormalClosure, `{"error":"`+missing.Error()+`"}`)
	}
	control(ctx, conn, map[string]any{"status": "connected"})
	t.mu.Lock()
	t.clients[conn] = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.clients, conn)
	}()
	if err := d.startTerminal(t); err != nil {
		return shut(conn, websocket.StatusInternalError, err.Error())
	}
	go func() {
		defer cancel()
		for {
			_, input, err := conn.Read(ctx)
			if err != nil {
				return
			}
			_, _ = t.file.Write(input)
		}
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-t.ended:
	}
	if d.config.New && strings.Contains(r.Header.Get("Sec-Websocket-Protocol"), exitControl) {
		exited := maps.Clone(t.end)
		exited["status"] = "exited"
		control(ctx, conn, exited)
	}
	reason, _ := json.Marshal(t.end)
	return shut(conn, websocket.StatusNormalClosure, string(reason))
}

func control(ctx context.Context, conn *websocket.Conn, message map[string]any) {
	message["type"] = "control"
	text, _ := json.Marshal(message)
	_ = conn.Write(ctx, websocket.MessageText, text) // the client may have gone
}
