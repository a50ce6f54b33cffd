package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// command prepares the next process of the broker.
func (b *Broker) command() {
	b.t.Helper()
	command := []string{filepath.Join(b.Dir, "bin", "sandbox-broker"), "serve", "--config", b.ConfigFile()}
	if b.limit > 0 {
		command = append([]string{"/bin/sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(b.limit)}, command...)
	}
	b.cmd = exec.Command(command[0], command[1:]...)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.Dir = b.Dir
	b.cmd.Env = append(os.Environ(), "TMPDIR="+b.Dir, "XDG_RUNTIME_DIR="+b.Dir, "HOME="+b.Dir, "PATH="+os.Getenv("PATH")+":"+binaries.Dir(b.t))
}

// begin starts the prepared process.
func (b *Broker) begin() {
	b.t.Helper()
	assert.NilError(b.t, b.cmd.Start())
	b.PID = b.cmd.Process.Pid
	cmd, ended := b.cmd, b.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
}

// Restart starts the broker again, on the directory and with the configuration that
// it has, after it was killed or stopped, and waits until it is ready. URL and PID
// are new.
func (b *Broker) Restart() {
	b.t.Helper()
	b.RestartWith()
}

// RestartWith is Restart with variables for that process alone, as NAME=value.
func (b *Broker) RestartWith(env ...string) {
	b.t.Helper()
	select {
	case <-b.ended:
	default:
		b.t.Fatal("the broker still runs")
	}
	attributes := b.cmd.SysProcAttr
	b.log, b.ended = &log{}, make(chan struct{})
	b.command()
	b.cmd.Env = append(b.cmd.Env, env...)
	b.cmd.SysProcAttr = attributes
	b.begin()
	b.waitReady()
}

// Suspend stops the broker with SIGSTOP and waits until all of its threads stand still: they go on
// for as long as none of them has been told.
func (b *Broker) Suspend() {
	b.t.Helper()
	assert.NilError(b.t, syscall.Kill(b.PID, syscall.SIGSTOP))
	poll.WaitOn(b.t, func(poll.LogT) poll.Result {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.PID))
		if err != nil {
			return poll.Error(err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if err != nil {
				return poll.Continue("%v", err) // it has just ended
			}
			// The state is behind the name, which may have any character.
			if state := text[bytes.LastIndexByte(text, ')')+1:]; !bytes.HasPrefix(state, []byte(" T ")) {
				return poll.Continue("a thread runs: %s", text)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(time.Millisecond))
}
