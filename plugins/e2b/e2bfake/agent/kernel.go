package agent

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
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
	// pasted says that the global environment was put before a cell already.
	pasted bool
	// ran are the cells that the process has run to a good end: what failed or was interrupted
	// may wait for ever when it is run again.
	ran []string
	// What follows is that of the process that runs now.
	command *exec.Cmd
	cells   io.WriteCloser
	events  *bufio.Reader
	pipe    *os.File
	// reaped is closed when the process is gone, stopped when somebody ends it.
	reaped, stopped chan struct{}
}

func errNoKernel(language string) error {
	return fmt.Errorf("failed to create context: the '%s' kernel is not available", language)
}

// defaultDir is where a kernel is that nobody has moved: only the creation of a context
// does, once.
const defaultDir = "/home/user"

// begin starts the process in a directory. It has nothing of the environment of the
// sandbox.
func (k *kernel) begin(dir string) error {
	interpreters := map[string][]string{
		"python": {"/usr/bin/python3", "-X", "no_debug_ranges", "-c", pythonKernel}, "javascript": {"/usr/bin/node", "-e", javaScriptKernel},
	}
	argv, ok := interpreters[k.language]
	if !ok {
		return errNoKernel(k.language)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "USER=root"}
	command.Dir = defaultDir
	if info, err := os.Stat(dir); err == nil && info.IsDir() { // else it fails silently
		command.Dir = dir
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
	reaped := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(reaped)
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.command, k.cells, k.events, k.pipe = command, cells, bufio.NewReader(r), r
	k.reaped, k.stopped = reaped, make(chan struct{})
	k.ran = nil
	return nil
}

// end kills the process with what it started in its group.
func (k *kernel) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.stopped:
	default:
		close(k.stopped)
	}
	_ = syscall.Kill(-k.command.Process.Pid, syscall.SIGKILL)
	<-k.reaped
}

// pastes puts the global environment before the first cell of a kernel. It is between
// quotes, and nothing in it is escaped.
func (k *kernel) pastes(env map[string]string, code string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pasted {
		return code
	}
	k.pasted = true
	line := "import os; os.environ['%s'] = '%s'\n"
	if k.language == "javascript" {
		line = "process.env['%s'] = '%s'\n"
	}
	var before strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&before, line, name, env[name])
	}
	return before.String() + code
}

// forgets makes the global environment be pasted again.
func (k *kernel) forgets() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pasted = false
}

// execute runs a cell and passes on its events. It fails if the process ends; then
// stopped is closed if somebody has ended it.
func (k *kernel) execute(code string, event func(json.RawMessage)) (stopped <-chan struct{}, err error) {
	k.mu.Lock()
	stopped, cells, events := k.stopped, k.cells, k.events
	k.mu.Unlock()
	if err := json.NewEncoder(cells).Encode(map[string]string{"code": code}); err != nil {
		return stopped, err
	}
	failed := false
	for {
		line, err := events.ReadBytes('\n')
		if err != nil {
			return stopped, err
		}
		var kind struct{ Type string }
		if err := json.Unmarshal(line, &kind); err != nil {
			return stopped, err
		}
		if kind.Type == "end_of_execution" {
			k.mu.Lock()
			if !failed {
				k.ran = append(k.ran, code)
			}
			k.mu.Unlock()
			return stopped, nil
		}
		failed = failed || kind.Type == "error"
		event(line)
	}
}
