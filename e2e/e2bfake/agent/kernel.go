package agent

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

var (
	//go:embed kernel.py
	pythonKernel string
	//go:embed kernel.js
	javaScriptKernel string
)

// kernel is the process behind a context.
type kernel struct {
	language, cwd string

	turn sync.Mutex // held by who executes
	mu   sync.Mutex
	// What follows is that of the process that runs now.
	command *exec.Cmd
	cells   io.WriteCloser
	events  *bufio.Reader
	pipe    *os.File
}

var errNoKernel = errors.New("no such kernel")

// begin starts the process.
func (k *kernel) begin(env map[string]string) error {
	interpreters := map[string][]string{
		"python": {"/usr/bin/python3", "-c", pythonKernel}, "javascript": {"/usr/bin/node", "-e", javaScriptKernel},
	}
	argv, ok := interpreters[k.language]
	if !ok {
		return errNoKernel
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	command := exec.Command(argv[0], argv[1:]...)
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/root", "USER": "root"}
	maps.Copy(all, env)
	for name, value := range all {
		command.Env = append(command.Env, name+"="+value)
	}
	if info, err := os.Stat(k.cwd); err == nil && info.IsDir() { // else it fails silently
		command.Dir = k.cwd
	}
	command.ExtraFiles = []*os.File{w}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cells, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.command, k.cells, k.events, k.pipe = command, cells, bufio.NewReader(r), r
	return nil
}

// end kills the process with what it started in its group.
func (k *kernel) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = syscall.Kill(-k.command.Process.Pid, syscall.SIGKILL)
	_ = k.command.Wait()
}

// execute runs a cell and passes on its events. It fails if the process ends, which it
// returns too.
func (k *kernel) execute(code string, event func(json.RawMessage)) (*exec.Cmd, error) {
	k.mu.Lock()
	command, cells, events := k.command, k.cells, k.events
	k.mu.Unlock()
	if err := json.NewEncoder(cells).Encode(map[string]string{"code": code}); err != nil {
		return command, err
	}
	for {
		line, err := events.ReadBytes('\n')
		if err != nil {
			return command, err
		}
		var kind struct{ Type string }
		if err := json.Unmarshal(line, &kind); err != nil {
			return command, err
		}
		if kind.Type == "end_of_execution" {
			return command, nil
		}
		event(line)
	}
}
