package toolbox

import (
	"bytes"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

var (
	variables = shape.Map{Of: shape.Text{}, Names: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)}
	timeout   = shape.Whole{Max: math.MaxInt32}
	some      = shape.Text{Form: regexp.MustCompile(`\S`)}

	execution = shape.Object{
		Needed:   map[string]shape.Shape{"command": some},
		Optional: map[string]shape.Shape{"cwd": shape.Text{}, "envs": variables, "timeout": timeout},
	}
	codeExecution = shape.Object{
		Needed:   map[string]shape.Shape{"code": shape.Text{}, "language": shape.Text{}},
		Optional: map[string]shape.Shape{"argv": shape.List{Of: shape.Text{}}, "envs": variables, "timeout": timeout},
	}
)

// shell is what commands are run by. The daemon would take zsh before bash: what runs here are
// the programs of the machine that tests run on, where zsh has no settings and asks for some.
func shell() string {
	for _, name := range []string{"bash", os.Getenv("SHELL"), "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "/bin/sh"
}

func environment(more map[string]string) []string {
	all := os.Environ()
	for name, value := range more {
		all = append(all, name+"="+value)
	}
	return all
}

// execute feeds a command to the standard input of a shell, so that whatever in it reads
// from there eats the rest.
func (d *daemon) execute(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Command, Cwd string
		Envs         map[string]string
		Timeout      int
	}
	if err := read(r, execution, &req); err != nil {
		return err
	}
	c := exec.Command(shell())
	c.Stdin, c.Dir, c.Env = strings.NewReader(req.Command), req.Cwd, environment(req.Envs)
	return finish(w, c, req.Timeout)
}

// codeRun runs a program in a process of its own.
func (d *daemon) codeRun(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Code, Language string
		Argv           []string
		Envs           map[string]string
		Timeout        int
	}
	if err := read(r, codeExecution, &req); err != nil {
		return err
	}
	// TypeScript is Node.js's affair: it knows as much of types as its version does.
	interpreter, ok := map[string]string{"python": "python3", "javascript": "node", "typescript": "node"}[req.Language]
	if !ok {
		return badRequest("unsupported language: %s", req.Language)
	}
	dir, err := os.MkdirTemp("", "code")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "main")
	if err := os.WriteFile(program, []byte(req.Code), 0o644); err != nil {
		return err
	}
	c := exec.Command(interpreter, append([]string{program}, req.Argv...)...)
	c.Env = environment(req.Envs)
	return finish(w, c, req.Timeout)
}

// finish runs a process and answers what became of it. Its output ends when the last
// holder of the pipe has closed it. After a timeout the answer comes at once, without what
// was put out.
func finish(w http.ResponseWriter, c *exec.Cmd, seconds int) error {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return answer(w, http.StatusOK, map[string]any{"exitCode": -1, "result": err.Error()})
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	var expired <-chan time.Time
	if seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-expired:
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		return &failure{http.StatusRequestTimeout, "REQUEST_TIMEOUT", "command execution timeout"}
	case <-ended:
	}
	code, result := c.ProcessState.ExitCode(), out.String()
	if code < 0 {
		result = "" // what a process put out that was killed is lost
	}
	return answer(w, http.StatusOK, map[string]any{"exitCode": code, "result": result})
}
