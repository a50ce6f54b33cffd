package toolbox

import (
	"bufio"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

//go:embed kernel.py
var kernelSource string

// interpreterContext is a Python process that keeps its state.
type interpreterContext struct {
	id, cwd string
	created time.Time

	turn sync.Mutex // held by who executes, for what follows
	in   io.WriteCloser
	out  *bufio.Reader

	mu      sync.Mutex
	process *exec.Cmd // nil where none runs
}

// event is what the process tells, and what clients get.
type event struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

const (
	defaultContext = "default"
	defaultTimeout = 10 * time.Minute
	// patience is how long code has that was interrupted.
	patience = 2 * time.Second
	// linger is how long a connection stays after the end of what it was for.
	linger = 50 * time.Millisecond

	closedByTimeout = 4008
)

var (
	newContext  = shape.Object{Optional: map[string]shape.Shape{"cwd": shape.Text{}, "language": shape.Text{}}}
	interpreted = shape.Object{
		Needed:   map[string]shape.Shape{"code": some},
		Optional: map[string]shape.Shape{"contextId": shape.Text{}, "timeout": timeout, "envs": variables},
	}
)

func (d *daemon) createContext(w http.ResponseWriter, r *http.Request) error {
	req := struct{ Cwd, Language string }{d.config.Home, "python"}
	if err := read(r, newContext, &req); err != nil {
		return err
	}
	if req.Language != "python" {
		return badRequest("unsupported language: %s", req.Language)
	}
	if info, err := os.Stat(req.Cwd); err != nil || !info.IsDir() {
		return badRequest("cwd is no directory")
	}
	c := &interpreterContext{id: strings.ToLower(rand.Text()), cwd: req.Cwd, created: time.Now()}
	if err := d.contexts.put("context", c.id, c); err != nil {
		return err
	}
	return answer(w, http.StatusOK, c.object())
}

func (c *interpreterContext) object() map[string]any {
	return map[string]any{"id": c.id, "cwd": c.cwd, "createdAt": c.created.UTC(), "active": true, "language": "python"}
}

func (d *daemon) listContexts(w http.ResponseWriter, _ *http.Request) error {
	all := []any{}
	for _, c := range d.contexts.sorted() {
		if c.id != defaultContext {
			all = append(all, c.object())
		}
	}
	return answer(w, http.StatusOK, map[string]any{"contexts": all})
}

func (d *daemon) deleteContext(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("id") == defaultContext {
		return badRequest("the default context cannot be deleted")
	}
	c, err := d.contexts.take("context", r.PathValue("id"))
	if err != nil {
		return err
	}
	c.signal(syscall.SIGKILL)
	return answer(w, http.StatusOK, map[string]string{"message": "Context deleted successfully"})
}

// signal reaches the process with its group, if there is one.
func (c *interpreterContext) signal(signal syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		_ = syscall.Kill(-c.process.Process.Pid, signal)
	}
}

func (c *interpreterContext) runs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process != nil
}

// begin starts a process, unless there is one.
func (c *interpreterContext) begin() error {
	if c.runs() {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	p := exec.Command("python3", "-c", kernelSource)
	p.Dir, p.ExtraFiles, p.SysProcAttr = c.cwd, []*os.File{w}, &syscall.SysProcAttr{Setpgid: true}
	in, err := p.StdinPipe()
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	c.in, c.out = in, bufio.NewReader(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = p
	return nil
}

// run executes code and tells of it, up to the control event. It fails if the process
// ends.
func (c *interpreterContext) run(code string, envs map[string]string, told func(event)) error {
	err := json.NewEncoder(c.in).Encode(map[string]any{"code": code, "envs": envs})
	for err == nil {
		var line []byte
		var e event
		if line, err = c.out.ReadBytes('\n'); err != nil {
			break
		}
		if err = json.Unmarshal(line, &e); err == nil {
			if told(e); e.Type == "control" {
				return nil
			}
		}
	}
	c.signal(syscall.SIGKILL)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.process.Wait()
	c.process = nil // the next execution starts another one
	return err
}

// interpret serves one execution over a WebSocket.
func (d *daemon) interpret(w http.ResponseWriter, r *http.Request) error {
	conn, err := upgrade(w, r)
	if err != nil {
		return nil //nolint:nilerr // it is answered already
	}
	defer conn.CloseNow()
	_, text, err := conn.Read(r.Context())
	if err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	req := struct {
		Code, ContextID string
		Timeout         *int
		Envs            map[string]string
	}{ContextID: defaultContext, Envs: map[string]string{}}
	if err := shape.Check(interpreted, text).Strict().Err(); err != nil {
		return shut(conn, websocket.StatusPolicyViolation, err.Error())
	}
	if err := json.Unmarshal(text, &req); err != nil {
		return shut(conn, websocket.StatusPolicyViolation, err.Error())
	}
	c, err := d.contexts.get("context", req.ContextID)
	if err != nil {
		return shut(conn, websocket.StatusPolicyViolation, err.Error())
	}
	limit := defaultTimeout
	if req.Timeout != nil {
		limit = time.Duration(*req.Timeout) * time.Second
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	if err := c.begin(); err != nil {
		return shut(conn, websocket.StatusInternalError, err.Error())
	}
	ctx := conn.CloseRead(r.Context())
	if limit > 0 {
		expired := time.AfterFunc(limit, func() { c.signal(syscall.SIGINT) })
		killed := time.AfterFunc(limit+patience, func() { c.signal(syscall.SIGKILL) })
		defer expired.Stop()
		defer killed.Stop()
	}
	end := ""
	err = c.run(req.Code, req.Envs, func(e event) {
		if e.Type == "control" {
			end = e.Text
		}
		if message, err := json.Marshal(e); err == nil {
			_ = conn.Write(ctx, websocket.MessageText, message) // who has gone does not stop the code
		}
	})
	switch {
	case err != nil:
		return shut(conn, websocket.StatusInternalError, "the interpreter has ended")
	case end == "interrupted":
		return shut(conn, closedByTimeout, "Execution timed out")
	}
	time.Sleep(linger)
	return shut(conn, websocket.StatusNormalClosure, "")
}

// shut closes a WebSocket. It is no answer any more.
func shut(conn *websocket.Conn, code websocket.StatusCode, reason string) error {
	_ = conn.Close(code, short(reason)) // the client may have gone
	return nil
}

// short is what a closing frame has room for.
func short(text string) string { return text[:min(len(text), 120)] }
