package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree/processtable"
)

// process is a command that runs in a sandbox, with all that it started.
type process struct {
	bwrap  *exec.Cmd
	report *os.File // what bwrap says about the sandbox
	events *json.Decoder
	// init is process 1 of the sandbox. When it ends the kernel ends all others, and
	// only when they are gone has it ended. It is no child of ours, but the handle
	// stays right even when its number, pid, belongs to somebody else.
	init *os.Process
	pid  int
	// namespace is that of the processes of the sandbox, and of no other.
	namespace string
}

// outcome is how a command ended.
type outcome struct {
	begun    bool // the sandbox was made and the command called
	exitCode int  // 128 plus the signal if one ended it
}

// startProcess is start, with the error as it is.
func (s sandbox) startProcess(c command) (*process, error) {
	call := &bwrapCall{}
	defer call.close()
	if c.answer != nil {
		call.give(c.answer)
	}
	report, reportEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	call.option("--json-status-fd", call.give(reportEnd))
	gateEnd, gate, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, report.Close())
	}
	defer gate.Close()
	call.option("--block-fd", call.give(gateEnd))
	s.describe(c, call)

	cmd, err := call.command(s.bwrap, c.argv)
	if err != nil {
		return nil, errors.Join(err, report.Close())
	}
	cmd.Stdout, cmd.Stderr = c.stdout, c.stderr
	if c.stdin != nil {
		cmd.Stdin = c.stdin
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, report.Close())
	}
	call.close() // so that the report ends when bwrap does
	started := &process{bwrap: cmd, report: report, events: json.NewDecoder(report)}
	if err := started.admit(gate, s.memory); err != nil {
		_ = cmd.Process.Kill()
		started.wait()
		return nil, err
	}
	return started, nil
}

// admit opens the gate that holds process 1 until there is a handle to it and it has
// its limits.
func (r *process) admit(gate io.Writer, memory uint64) error {
	var event struct {
		PID int `json:"child-pid"`
	}
	if err := r.events.Decode(&event); err != nil {
		return errors.New("bwrap ended before it made a sandbox")
	}
	init, err := os.FindProcess(event.PID)
	if err != nil {
		return err
	}
	r.init, r.pid = init, event.PID
	if r.namespace, err = namespaceOf(event.PID); err != nil {
		return err
	}
	// Not the address space: JavaScript reserves much more of that than it uses.
	if err := unix.Prlimit(event.PID, unix.RLIMIT_DATA, &unix.Rlimit{Cur: memory, Max: memory}, nil); err != nil {
		return err
	}
	_, err = gate.Write([]byte{1})
	return err
}

// interrupt does what Ctrl-C does: process 1 leads the group of the command and of
// what that has in the foreground, and is deaf to the signal itself. The answer says
// whether there is such a group.
func (r *process) interrupt() bool {
	return r.init.Signal(syscall.Signal(0)) == nil && unix.Kill(-r.pid, unix.SIGINT) == nil
}

// signal sends a signal to all processes of the sandbox but process 1, which is bwrap's.
// What they start meanwhile may miss it.
func (r *process) signal(signal syscall.Signal) error {
	if err := r.init.Signal(syscall.Signal(0)); err != nil {
		return err
	}
	all, err := processtable.Read()
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.PID != r.pid && r.holds(p.PID) {
			r.signalOne(p.PID, signal)
		}
	}
	return nil
}

// signalOne sends a signal to a process, unless it has ended meanwhile: its number may be
// another's before there is a handle to it, but not afterwards.
func (r *process) signalOne(pid int, signal syscall.Signal) {
	one, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	if r.holds(pid) {
		_ = one.Signal(signal)
	}
	_ = one.Release()
}

// holds says whether a process is one of the sandbox.
func (r *process) holds(pid int) bool {
	namespace, err := namespaceOf(pid)
	return err == nil && namespace == r.namespace
}

func namespaceOf(pid int) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
}

// kill ends all processes of the sandbox.
func (r *process) kill() { _ = r.init.Kill() }

// wait returns when all processes of the sandbox have ended and their output has
// been read.
func (r *process) wait() outcome {
	_ = r.bwrap.Wait()
	defer r.report.Close()
	if r.init != nil {
		_ = r.init.WithHandle(awaitEnd) // bwrap ends a moment before process 1
		_ = r.init.Release()
	}
	var event struct {
		ExitCode *int `json:"exit-code"`
	}
	err := r.events.Decode(&event)
	return outcome{begun: err == nil && event.ExitCode != nil, exitCode: r.bwrap.ProcessState.ExitCode()}
}

// awaitEnd waits for a process by its pidfd.
func awaitEnd(handle uintptr) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
