package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"gotest.tools/v3/assert"

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
	select {
	case <-b.ended:
	default:
		b.t.Fatal("the broker still runs")
	}
	attributes := b.cmd.SysProcAttr
	b.log, b.ended = &log{}, make(chan struct{})
	b.command()
	b.cmd.SysProcAttr = attributes
	b.begin()
	b.waitReady()
}
