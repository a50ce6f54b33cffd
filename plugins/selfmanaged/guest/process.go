package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// process is an interpreter, alone in a PID namespace. What it runs arrives
// later, so it can be started ahead.
type process struct {
	init    *exec.Cmd
	request *os.File // nil if it got its code at the start
	stdout  *os.File
	stderr  *os.File
	result  *os.File
	status  *os.File
	leaves  string // see spawn

	waitOnce sync.Once
}

// startProcess starts an interpreter with its environment. What it shall run is
// written to request. The caller must end it with wait.
func startProcess(s spawn, env []string) (*process, error) {
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode what to start: %w", err)
	}
	p := &process{leaves: s.Leaves}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	pipe := func(ours **os.File, weWrite bool) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if weWrite {
			r, w = w, r
		}
		*ours = r
		theirs = append(theirs, w)
		return w, nil
	}
	stdout, err1 := pipe(&p.stdout, false)
	stderr, err2 := pipe(&p.stderr, false)
	result, err3 := pipe(&p.result, false)
	status, err4 := pipe(&p.status, false)
	request, err5 := pipe(&p.request, true)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		p.closePipes()
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	// /proc belongs to the PID namespace of whoever mounted it, hence a mount
	// namespace too. Shared memory and queues end with their namespace; without
	// one of its own an execution would leave them to the next.
	p.init = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"sandbox-guest", initCommand, string(encoded)},
		Env: env, Dir: "/",
		Stdout: stdout, Stderr: stderr, ExtraFiles: []*os.File{request, result, status},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC},
	}
	if err := p.init.Start(); err != nil {
		p.closePipes()
		return nil, fmt.Errorf("start init: %w", err)
	}
	return p, nil
}

// waitReady returns when the interpreter says that it waits for a request.
func (p *process) waitReady() error {
	var b [1]byte
	if _, err := io.ReadFull(p.result, b[:]); err != nil {
		complaint, _ := io.ReadAll(io.LimitReader(p.stderr, 4<<10))
		return fmt.Errorf("interpreter ended before it was ready: %s", complaint)
	}
	return nil
}

// kill ends every process of the namespace. It may be called at any time
// before wait returns, and more than once.
func (p *process) kill() { _ = p.init.Process.Kill() }

// exit returns how the interpreter ended, once it has. ok is false if it was
// killed together with its init.
func (p *process) exit() (status exitStatus, ok bool) {
	err := json.NewDecoder(p.status).Decode(&status)
	return status, err == nil
}

// wait reaps the init process, which the kernel lets go only after every other
// process of its namespace, and removes what is left. It may be called twice.
func (p *process) wait() {
	p.waitOnce.Do(func() {
		_ = p.init.Wait()
		if p.leaves != "" {
			_ = os.Remove(p.leaves) // most code leaves none
		}
		p.closePipes()
	})
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.request, p.stdout, p.stderr, p.result, p.status} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// environment is what every interpreter starts with; the caller's variables come
// with the request.
func environment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=" + WorkspaceDir,
		"USER=sandbox", "LOGNAME=sandbox", "SHELL=/bin/bash",
		"LANG=C.UTF-8", "TMPDIR=/tmp",
		"PYTHONDONTWRITEBYTECODE=1", "MPLCONFIGDIR=/tmp",
	}
}
