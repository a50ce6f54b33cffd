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
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
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
	pending []*request // asked for, in this order
	running map[int]*isolation.Child

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
		conn: conn.(*net.UnixConn), running: map[int]*isolation.Child{},
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

// request is a fork that was asked for.
type request struct {
	namespace *pidnamespace.Namespace
	answered  chan struct{} // closed when the rest is valid
	child     *isolation.Child
	refused   error
}

// Fork makes an interpreter, which the caller must end with Wait.
func (s *Server) Fork(streams Streams) (*isolation.Child, error) {
	namespace, err := pidnamespace.New()
	if err != nil {
		return nil, fmt.Errorf("make a namespace: %w", err)
	}
	r := &request{namespace: namespace, answered: make(chan struct{})}
	if err = s.ask(r, streams); err == nil {
		err = s.answer(r)
	}
	if err != nil {
		namespace.Kill()
		namespace.Wait()
		return nil, fmt.Errorf("fork an interpreter: %w", err)
	}
	return r.child, nil
}

// answer waits for what became of a request.
func (s *Server) answer(r *request) error {
	timer := time.NewTimer(forkBound)
	defer timer.Stop()
	select {
	case <-r.answered:
		return r.refused
	case <-s.ended:
		return ErrEnded
	case <-timer.C:
		s.Close() // it is beyond help
		return fmt.Errorf("no answer within %s", forkBound)
	}
}

// ask sends a request. Its answer comes to read.
func (s *Server) ask(r *request, streams Streams) error {
	rights := unix.UnixRights(streams.Stdout, streams.Stderr, streams.Request, streams.Result)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return ErrEnded
	}
	if _, _, err := s.conn.WriteMsgUnix([]byte(strconv.Itoa(r.namespace.PID())), rights, nil); err != nil {
		return fmt.Errorf("ask the fork server: %w", err)
	}
	s.pending = append(s.pending, r)
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
		r := s.pending[0]
		s.pending = s.pending[1:]
		if kind == "refused" {
			r.refused = errors.New(rest)
		} else {
			r.child = isolation.NewChild(r.namespace, numbers[0])
			s.running[numbers[0]] = r.child
		}
		close(r.answered)
	case "exited":
		if c := s.running[numbers[0]]; c != nil {
			delete(s.running, numbers[0])
			c.End(unix.WaitStatus(numbers[1]), int64(numbers[2])<<10)
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
	for pid, c := range left {
		c.Kill()
		var status unix.WaitStatus
		var usage unix.Rusage
		for {
			if _, err := unix.Wait4(pid, &status, 0, &usage); err != unix.EINTR {
				break
			}
		}
		c.End(status, usage.Maxrss<<10)
	}
	close(s.ended)
}
