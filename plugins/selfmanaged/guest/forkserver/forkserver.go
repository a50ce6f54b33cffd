// Package forkserver starts interpreters of Python by forking one that has loaded what
// most programs need, which takes a tenth of what a start does.
//
// The server is a process of the sandbox's root that has seen no code and no request of
// anybody: runner.py, told to serve. Each fork moves into a PID namespace of its own
// (package pidnamespace) and a mount and an IPC namespace, gives up all rights, and is
// an interpreter then that waits as one that was started. What it is fed is the caller's
// matter.
package forkserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/pidnamespace"
)

// Bounds on what the server may take: to load its modules, and to fork. A machine may be
// busy.
const (
	startBound = 30 * time.Second
	forkBound  = 10 * time.Second
)

// ErrEnded is answered once the server has ended. Interpreters have to be started then.
var ErrEnded = errors.New("the fork server has ended")

// Server forks interpreters.
type Server struct {
	cmd  *exec.Cmd
	conn *net.UnixConn

	mu      sync.Mutex
	pending []*Process // asked for, in this order
	running map[int]*Process

	ready chan struct{} // closed when it may be asked
	ended chan struct{} // closed when it is gone, and all that it forked too
}

// Start starts a server, and returns when it may be asked. Argv is the program that
// serves on descriptor 3. It ends with Close, or with the guest.
func Start(argv, env []string, limits isolation.Limits) (*Server, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make sockets: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err := errors.Join(err, ours.Close()); err != nil {
		return nil, fmt.Errorf("make sockets: %w", err)
	}
	s := &Server{
		conn: conn.(*net.UnixConn), running: map[int]*Process{},
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
	s.cmd = &exec.Cmd{
		Path: argv[0], Args: argv, Env: env, Dir: "/",
		Stdout: os.Stderr, Stderr: os.Stderr, ExtraFiles: []*os.File{theirs},
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the fork server: %w", err), s.conn.Close())
	}
	go s.read()
	if err = limits.Set(s.cmd.Process.Pid); err == nil {
		timer := time.NewTimer(startBound)
		defer timer.Stop()
		select {
		case <-s.ready:
			return s, nil
		case <-s.ended:
			err = ErrEnded
		case <-timer.C:
			err = fmt.Errorf("it was not ready within %s", startBound)
		}
	}
	s.Close()
	return nil, fmt.Errorf("start the fork server: %w", err)
}

// PID of the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Ended says whether the server has ended.
func (s *Server) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Close ends the server and all that it forked, and waits for their end.
func (s *Server) Close() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Streams are an interpreter's ends of its descriptors. The caller closes its own copies
// after Fork.
type Streams struct{ Stdout, Stderr, Request, Result int }

// Fork makes an interpreter, which the caller must end with Wait.
func (s *Server) Fork(streams Streams) (*Process, error) {
	namespace, err := pidnamespace.New()
	if err != nil {
		return nil, fmt.Errorf("make a namespace: %w", err)
	}
	p := &Process{namespace: namespace, forked: make(chan struct{}), exited: make(chan struct{})}
	if err = s.ask(p, streams); err == nil {
		err = s.answer(p)
	}
	if err != nil {
		p.Kill()
		p.Wait()
		return nil, fmt.Errorf("fork an interpreter: %w", err)
	}
	return p, nil
}

// answer waits for what became of a request.
func (s *Server) answer(p *Process) error {
	timer := time.NewTimer(forkBound)
	defer timer.Stop()
	select {
	case <-p.forked:
		return p.refused
	case <-s.ended:
		return ErrEnded
	case <-timer.C:
		s.Close() // it is beyond help
		return fmt.Errorf("no answer within %s", forkBound)
	}
}

// ask sends a request. Its answer comes to read.
func (s *Server) ask(p *Process, streams Streams) error {
	rights := unix.UnixRights(streams.Stdout, streams.Stderr, streams.Request, streams.Result)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return ErrEnded
	}
	if _, _, err := s.conn.WriteMsgUnix([]byte(strconv.Itoa(p.namespace.PID())), rights, nil); err != nil {
		return fmt.Errorf("ask the fork server: %w", err)
	}
	s.pending = append(s.pending, p)
	// It waits for signals: those of its children, and this.
	return s.cmd.Process.Signal(unix.SIGUSR1)
}

// read takes what the server says until it ends.
func (s *Server) read() {
	var packet [256]byte
	for {
		n, err := s.conn.Read(packet[:])
		if err != nil || n == 0 {
			break
		}
		s.take(string(packet[:n]))
	}
	s.end()
}

// take takes one message: ready; forked PID; refused REASON; exited PID STATUS KILOBYTES.
func (s *Server) take(message string) {
	kind, rest, _ := strings.Cut(message, " ")
	var numbers [3]int
	if kind != "refused" {
		for i, field := range strings.Fields(rest) {
			if i < len(numbers) {
				numbers[i], _ = strconv.Atoi(field)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case "ready":
		close(s.ready)
	case "forked", "refused":
		p := s.pending[0]
		s.pending = s.pending[1:]
		if kind == "refused" {
			p.refused = errors.New(rest)
		} else {
			p.pid = numbers[0]
			s.running[p.pid] = p
		}
		close(p.forked)
	case "exited":
		if p := s.running[numbers[0]]; p != nil {
			delete(s.running, p.pid)
			p.end(unix.WaitStatus(numbers[1]), int64(numbers[2])<<10)
		}
	}
}

// end takes care of what the server leaves: its children are the guest's now.
func (s *Server) end() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = s.conn.Close()
	s.mu.Lock()
	left := s.running
	s.running, s.pending = nil, nil
	s.mu.Unlock()
	for pid, p := range left {
		p.Kill()
		var status unix.WaitStatus
		var usage unix.Rusage
		for {
			if _, err := unix.Wait4(pid, &status, 0, &usage); err != unix.EINTR {
				break
			}
		}
		p.end(status, usage.Maxrss<<10)
	}
	close(s.ended)
}

// Process is a forked interpreter with its descendants.
type Process struct {
	namespace *pidnamespace.Namespace
	forked    chan struct{} // closed when refused and pid are valid
	refused   error
	pid       int

	killed atomic.Bool
	mu     sync.Mutex    // guards gone: a PID may be another's once it was waited for
	gone   bool          // the interpreter
	exited chan struct{} // closed when exit is valid
	exit   isolation.Exit
	waited sync.Once
}

// end notes how the interpreter ended, and ends what it left running.
func (p *Process) end(status unix.WaitStatus, peak int64) {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.exit = isolation.ExitOf(status, peak)
	close(p.exited)
	p.namespace.Kill()
}

// Roots are the processes from which all processes of the interpreter descend: itself,
// and process 1 of its namespace for what it has orphaned.
func (p *Process) Roots() []int { return []int{p.pid, p.namespace.PID()} }

// Started returns at once: what was forked runs.
func (p *Process) Started(context.Context) error { return nil }

// Exit returns how the interpreter ended, once it has. ok is false if it was killed.
func (p *Process) Exit() (exit isolation.Exit, ok bool) {
	<-p.exited
	if p.exit.Signal == int(unix.SIGKILL) && p.killed.Load() {
		return isolation.Exit{}, false
	}
	return p.exit, true
}

// Interrupt sends SIGINT to the interpreter's process group, as a terminal does. One that
// has ended does not mind.
func (p *Process) Interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = unix.Kill(-p.pid, unix.SIGINT) // it leads its group
	}
}

// Kill ends every process of the interpreter. It may be called at any time, and more than
// once.
func (p *Process) Kill() {
	p.killed.Store(true)
	p.namespace.Kill()
}

// Wait waits until every process of the interpreter is gone. It may be called twice.
func (p *Process) Wait() { p.waited.Do(p.namespace.Wait) }
