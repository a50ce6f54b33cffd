package local

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// markVariable is in the environment of every process that belongs to an instance,
// with what it belongs to as its value. Children inherit it, whatever session or
// group they go to.
const markVariable = "LOCAL_PROVIDER_MARK"

// mark is the beginning of the marks of all processes of an instance.
func (i *instance) mark() string { return markVariable + "=" + i.dir + "/" }

// marked lists the living processes whose mark begins so.
func marked(mark string) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		environment, err := os.ReadFile(dir + "/environ")
		if err != nil {
			continue // it has ended, or is another user's
		}
		for variable := range bytes.SplitSeq(environment, []byte{0}) {
			if bytes.HasPrefix(variable, []byte(mark)) {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killMarked kills processes until there are none: one may start another meanwhile.
func killMarked(mark string) error {
	for range 1000 {
		pids := marked(mark)
		if len(pids) == 0 {
			return nil
		}
		signalAll(pids, syscall.SIGKILL)
	}
	return errors.New("there is no end of processes")
}

func signalAll(pids []int, signal syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, signal) // it may have ended
	}
}

// process is a program with a mark of its own.
type process struct {
	cmd  *exec.Cmd
	mark string

	killing sync.Once
	mu      sync.Mutex
	reason  error // why it was killed; nil if it was not
}

// newProcess prepares a program with the environment of the instance.
func (i *instance) newProcess(argv []string, env ...map[string]string) *process {
	mark := i.mark() + newID()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = i.workspace()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": i.workspace(), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
	maps.Copy(all, i.Env)
	for _, more := range env {
		maps.Copy(all, more)
	}
	for name, value := range all {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, mark)
	return &process{cmd: cmd, mark: mark}
}

// end kills the process and all that it started, and remembers the first reason.
func (p *process) end(reason error) {
	p.killing.Do(func() {
		p.mu.Lock()
		if p.reason == nil {
			p.reason = reason
		}
		p.mu.Unlock()
		_ = killMarked(p.mark)
	})
}

func (p *process) endedBy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// run runs the process to its end, which ctx may bring about, and passes on what
// it prints. It returns when nothing of it is left.
func (p *process) run(ctx context.Context, stdout, stderr func([]byte) error) error {
	var pumps sync.WaitGroup
	var writers []*os.File
	pump := func(to func([]byte) error) (*os.File, error) {
		reader, writer, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		writers = append(writers, writer)
		pumps.Go(func() {
			defer reader.Close()
			if _, err := io.Copy(writerFunc(to), reader); err != nil {
				p.end(err)
			}
		})
		return writer, nil
	}
	out, err := pump(stdout)
	if err != nil {
		return err
	}
	errOut, err := pump(stderr)
	if err == nil {
		p.cmd.Stdout, p.cmd.Stderr = out, errOut
		err = p.cmd.Start()
	}
	for _, w := range writers {
		w.Close()
	}
	if err != nil {
		pumps.Wait()
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.end(context.Cause(ctx)) })
	_ = p.cmd.Wait() // how it ended stands in ProcessState
	stop()
	err = killMarked(p.mark)
	pumps.Wait()
	return err
}

type writerFunc func([]byte) error

func (f writerFunc) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// exitCode is that of the interpreter, or 128 and the signal.
func (p *process) exitCode() int {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) cpuTime() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}
