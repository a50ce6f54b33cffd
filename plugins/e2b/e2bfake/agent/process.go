package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pty"
)

// The messages, as proto3 JSON has them: what is zero is not there.
type (
	processConfig struct {
		Cmd  string            `json:"cmd,omitempty"`
		Args []string          `json:"args,omitempty"`
		Envs map[string]string `json:"envs,omitempty"`
		Cwd  string            `json:"cwd,omitempty"`
	}
	ptySize struct {
		Size struct {
			Cols uint16 `json:"cols"`
			Rows uint16 `json:"rows"`
		} `json:"size"`
	}
	startRequest struct {
		Process processConfig `json:"process"`
		Pty     *ptySize      `json:"pty"`
		Tag     string        `json:"tag"`
		Stdin   *bool         `json:"stdin"`
	}
	selector struct {
		PID int    `json:"pid"`
		Tag string `json:"tag"`
	}
	processRequest struct {
		Process selector `json:"process"`
		Pty     *ptySize `json:"pty"`
		Signal  string   `json:"signal"`
		Input   struct {
			Stdin []byte `json:"stdin"`
			Pty   []byte `json:"pty"`
		} `json:"input"`
	}
	processInfo struct {
		Config processConfig `json:"config"`
		PID    int           `json:"pid,omitempty"`
		Tag    string        `json:"tag,omitempty"`
	}
	listResponse struct {
		Processes []processInfo `json:"processes,omitempty"`
	}
	empty struct{}

	startEvent struct {
		PID int `json:"pid,omitempty"`
	}
	dataEvent struct {
		Stdout []byte `json:"stdout,omitempty"`
		Stderr []byte `json:"stderr,omitempty"`
		Pty    []byte `json:"pty,omitempty"`
	}
	endEvent struct {
		ExitCode int    `json:"exitCode,omitempty"`
		Exited   bool   `json:"exited,omitempty"`
		Status   string `json:"status,omitempty"`
		Error    string `json:"error,omitempty"`
	}
	event struct {
		Start     *startEvent `json:"start,omitempty"`
		Data      *dataEvent  `json:"data,omitempty"`
		End       *endEvent   `json:"end,omitempty"`
		Keepalive *empty      `json:"keepalive,omitempty"`
	}
	eventMessage struct {
		Event event `json:"event"`
	}
)

// keptEnd is how long the end of a process can still be asked for.
const keptEnd = 30 * time.Second

// process is a running program and those that listen to it.
type process struct {
	user    string
	request startRequest
	info    processInfo
	command *exec.Cmd
	stdin   *os.File
	pty     *os.File

	mu        sync.Mutex
	listeners map[*listener]struct{}
	signalled chan struct{} // closed by a signal
	ended     chan struct{} // closed when end is known
	end       endEvent
}

// listener takes events one after the other: who is slow stops the process.
type listener struct {
	events chan event
	gone   <-chan struct{}
}

func (e *envd) start(r *http.Request, req startRequest, out *stream) error {
	user, err := e.user(r)
	if err != nil {
		return err
	}
	if req.Process.Cwd == "" {
		req.Process.Cwd = home(user)
	}
	if info, err := os.Stat(req.Process.Cwd); err != nil || !info.IsDir() {
		return rpcErrorf("invalid_argument", fmt.Sprintf("cwd '%s' does not exist", req.Process.Cwd))
	}
	l := &listener{make(chan event), r.Context().Done()}
	p, err := e.launch(user, req, l)
	if err != nil {
		return rpcErrorf("internal", err.Error())
	}
	expired := make(chan struct{})
	if ms, err := strconv.Atoi(r.Header.Get("Connect-Timeout-Ms")); err == nil && ms > 0 {
		timer := time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
			_ = p.command.Process.Kill() // the direct child alone
			close(expired)
		})
		defer timer.Stop()
	}
	return p.follow(r, l, out, expired)
}

// launch starts a program. Listeners hear all of it.
func (e *envd) launch(user string, req startRequest, listeners ...*listener) (*process, error) {
	p := &process{
		user: user, request: req, info: processInfo{Config: req.Process, Tag: req.Tag},
		listeners: map[*listener]struct{}{}, signalled: make(chan struct{}), ended: make(chan struct{}),
	}
	// The wrapper is why a program that is not there is no error but exit code 127.
	p.command = exec.Command("/bin/sh", append([]string{"-c", `exec "$0" "$@"`, req.Process.Cmd}, req.Process.Args...)...)
	p.command.Dir, p.command.Env = req.Process.Cwd, e.environment(user, req.Process.Envs)
	for _, l := range listeners {
		p.listeners[l] = struct{}{}
	}
	if err := p.begin(e, req); err != nil {
		return nil, err
	}
	p.info.PID = p.command.Process.Pid
	e.mu.Lock()
	e.processes[p.info.PID] = p
	e.mu.Unlock()
	go func() {
		<-p.ended
		time.AfterFunc(keptEnd, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.processes, p.info.PID)
		})
	}()
	return p, nil
}

// begin starts the program with its pipes or terminal.
func (p *process) begin(e *envd, req startRequest) error {
	var readers []func(chan<- struct{})
	var release []*os.File
	if req.Pty != nil {
		master, slave, err := pty.Open(req.Pty.Size.Cols, req.Pty.Size.Rows)
		if err != nil {
			return err
		}
		p.pty = master
		release = append(release, slave)
		p.command.Stdin, p.command.Stdout, p.command.Stderr = slave, slave, slave
		p.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		readers = append(readers, p.pump(master, 16<<10, func(b []byte) dataEvent { return dataEvent{Pty: b} }))
	} else {
		for to, data := range map[*io.Writer]func([]byte) dataEvent{
			&p.command.Stdout: func(b []byte) dataEvent { return dataEvent{Stdout: b} },
			&p.command.Stderr: func(b []byte) dataEvent { return dataEvent{Stderr: b} },
		} {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			release = append(release, w)
			*to = w
			readers = append(readers, p.pump(r, 32<<10, data))
		}
		if req.Stdin == nil || *req.Stdin || !e.since(0, 3, 0) {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			release = append(release, r)
			p.command.Stdin, p.stdin = r, w
		}
	}
	err := p.command.Start()
	for _, f := range release {
		f.Close()
	}
	if err != nil {
		return err
	}
	drained := make(chan struct{}, len(readers))
	for _, read := range readers {
		go read(drained)
	}
	go p.wait(drained, len(readers))
	return nil
}

// pump passes on what comes out of a file, in pieces of a size.
func (p *process) pump(f *os.File, size int, data func([]byte) dataEvent) func(chan<- struct{}) {
	return func(drained chan<- struct{}) {
		defer func() { f.Close(); drained <- struct{}{} }()
		for {
			piece := make([]byte, size)
			n, err := f.Read(piece)
			if n > 0 {
				d := data(piece[:n])
				p.publish(event{Data: &d})
			}
			if err != nil {
				return
			}
		}
	}
}

// publish blocks until every listener has taken the event; without listeners it is
// thrown away.
func (p *process) publish(ev event) {
	p.mu.Lock()
	listeners := make([]*listener, 0, len(p.listeners))
	for l := range p.listeners {
		listeners = append(listeners, l)
	}
	p.mu.Unlock()
	for _, l := range listeners {
		select {
		case l.events <- ev:
		case <-l.gone:
			p.mu.Lock()
			delete(p.listeners, l)
			p.mu.Unlock()
		}
	}
}

// wait learns of the end: that of the program and, unless it was signalled, that of
// everything that holds its pipes.
func (p *process) wait(drained <-chan struct{}, n int) {
	exited := make(chan struct{})
	go func() {
		_ = p.command.Wait()
		close(exited)
	}()
	for i := 0; i < n; i++ {
		select {
		case <-drained:
			continue
		case <-p.signalled:
		}
		select { // a moment for what is already in the pipe
		case <-drained:
		case <-exited:
			i = n
		}
	}
	<-exited
	state := p.command.ProcessState
	p.end = endEvent{ExitCode: state.ExitCode(), Exited: state.Exited(), Status: state.String()}
	if !state.Success() {
		p.end.Error = state.String()
	}
	close(p.ended)
}

// follow sends events until the end.
func (p *process) follow(r *http.Request, l *listener, out *stream, expired <-chan struct{}) error {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.listeners, l)
	}()
	out.send(0, eventMessage{event{Start: &startEvent{p.info.PID}}})
	every := 90 * time.Second
	if s, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval")); err == nil && s > 0 {
		every = time.Duration(s) * time.Second
	}
	keepalive := time.NewTicker(every)
	defer keepalive.Stop()
	for {
		select {
		case ev := <-l.events:
			out.send(0, eventMessage{ev})
			continue
		default:
		}
		select {
		case ev := <-l.events:
			out.send(0, eventMessage{ev})
		case <-expired:
			return rpcErrorf("deadline_exceeded", context.DeadlineExceeded.Error())
		case <-p.ended:
			select { // killed by the limit counts as that
			case <-expired:
				return rpcErrorf("deadline_exceeded", context.DeadlineExceeded.Error())
			default:
			}
			out.send(0, eventMessage{event{End: &p.end}})
			return nil
		case <-keepalive.C:
			out.send(0, eventMessage{event{Keepalive: &empty{}}})
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

func (e *envd) find(s selector) (*process, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for pid, p := range e.processes {
		if pid == s.PID || s.Tag != "" && p.info.Tag == s.Tag {
			return p, nil
		}
	}
	return nil, rpcErrorf("not_found", fmt.Sprintf("process with pid %d not found", s.PID))
}

func (e *envd) connect(r *http.Request, req processRequest, out *stream) error {
	p, err := e.find(req.Process)
	if err != nil {
		return err
	}
	l := &listener{make(chan event), r.Context().Done()}
	p.mu.Lock()
	p.listeners[l] = struct{}{}
	p.mu.Unlock()
	return p.follow(r, l, out, nil)
}

func (e *envd) list(*http.Request, empty) (listResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var resp listResponse
	for _, p := range e.processes {
		select {
		case <-p.ended:
		default:
			resp.Processes = append(resp.Processes, p.info)
		}
	}
	return resp, nil
}

func (e *envd) update(_ *http.Request, req processRequest) (empty, error) {
	p, err := e.find(req.Process)
	if err != nil {
		return empty{}, err
	}
	if p.pty == nil || req.Pty == nil {
		return empty{}, rpcErrorf("failed_precondition", "tty not assigned to process")
	}
	return empty{}, pty.Resize(p.pty, req.Pty.Size.Cols, req.Pty.Size.Rows)
}

func (e *envd) sendInput(_ *http.Request, req processRequest) (empty, error) {
	p, err := e.find(req.Process)
	if err != nil {
		return empty{}, err
	}
	to, data := p.stdin, req.Input.Stdin
	if req.Input.Pty != nil {
		to, data = p.pty, req.Input.Pty
	}
	if to == nil {
		return empty{}, rpcErrorf("failed_precondition", "stdin not enabled or closed")
	}
	if _, err := to.Write(data); err != nil {
		return empty{}, rpcErrorf("internal", fmt.Sprintf("error writing to stdin: %v", errors.Unwrap(err)))
	}
	return empty{}, nil
}

func (e *envd) closeStdin(_ *http.Request, req processRequest) (empty, error) {
	p, err := e.find(req.Process)
	if err != nil {
		return empty{}, err
	}
	if p.pty != nil {
		return empty{}, rpcErrorf("failed_precondition", "stdin of a pty cannot be closed")
	}
	if p.stdin != nil {
		p.stdin.Close()
	}
	return empty{}, nil
}

// sendSignal reaches the one process, not its group.
func (e *envd) sendSignal(_ *http.Request, req processRequest) (empty, error) {
	p, err := e.find(req.Process)
	if err != nil {
		return empty{}, err
	}
	signal, ok := map[string]syscall.Signal{"SIGNAL_SIGTERM": syscall.SIGTERM, "SIGNAL_SIGKILL": syscall.SIGKILL}[req.Signal]
	if !ok {
		return empty{}, rpcErrorf("invalid_argument", "invalid signal: "+req.Signal)
	}
	if err := p.command.Process.Signal(signal); err != nil {
		return empty{}, rpcErrorf("internal", err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.signalled:
	default:
		close(p.signalled)
	}
	return empty{}, nil
}
