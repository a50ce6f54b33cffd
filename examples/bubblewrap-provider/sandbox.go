package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sandbox says what every sandbox is like.
type sandbox struct {
	bwrap    string   // path of the program
	readOnly []string // paths of the host, beside /usr
	memory   uint64   // bytes, of each process
}

// command is what to run in a sandbox.
type command struct {
	argv           []string
	env            map[string]string
	kept           string   // directory of the host whose parts are kept; empty for none
	file, content  string   // to be made in the sandbox
	stdin          *os.File // empty if nil
	stdout, stderr io.Writer
	answer         *os.File // descriptor 3 of the command, and closed here; nil for none
}

// describe tells bwrap what the sandbox is like.
func (s sandbox) describe(c command, to *bwrapCall) {
	to.option("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
	to.option("--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL", "--disable-userns")
	to.option("--new-session")     // no way to the terminal that the broker may have
	to.option("--die-with-parent") // whatever this plugin dies of
	to.option("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64")
	for _, path := range []string{"/etc/alternatives", "/etc/ld.so.cache"} { // what /usr does not work without
		to.option("--ro-bind-try", path, path)
	}
	for _, path := range s.readOnly {
		to.option("--ro-bind", path, path)
	}
	to.option("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run")
	if c.file != "" {
		to.option("--file", to.content(c.content), c.file)
	}
	if c.kept != "" {
		for _, directory := range keptDirectories {
			to.option("--bind", filepath.Join(c.kept, directory), "/"+directory)
		}
		to.option("--chdir", workspace)
	}
	to.option("--remount-ro", "/", "--clearenv")
	for name, value := range c.env {
		to.option("--setenv", name, value)
	}
}

var errNoSandbox = sdk.Errorf(sdk.CodeUnavailable, "bwrap could not make the sandbox")

// start starts a command. Whoever has the process must wait for it.
func (s sandbox) start(c command) (*process, error) {
	started, err := s.startProcess(c)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "bwrap cannot be started: %w", withoutPath(err))
	}
	return started, nil
}

// run runs a command to its end, or to that of ctx, and returns when all processes
// of the sandbox have ended. started is called as soon as it may run.
func (s sandbox) run(ctx context.Context, c command, started func(*process)) (outcome, error) {
	running, err := s.start(c)
	if err != nil {
		return outcome{}, err
	}
	started(running)
	defer context.AfterFunc(ctx, running.kill)()
	ended := running.wait()
	if !ended.begun && ctx.Err() == nil {
		return outcome{}, errNoSandbox
	}
	return ended, nil
}

// try makes an empty sandbox and says why that does not work.
func (s sandbox) try(ctx context.Context) error {
	var said bytes.Buffer
	ended, err := s.run(ctx, command{argv: []string{"/usr/bin/true"}, stdout: &said, stderr: &said}, func(*process) {})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case said.Len() > 0:
		return sdk.Errorf(sdk.CodeUnavailable, "bwrap makes no sandbox on this machine: %s", strings.TrimSpace(said.String()))
	case err == nil && ended.exitCode != 0:
		return sdk.Errorf(sdk.CodeUnavailable, "an empty sandbox ended with exit code %d", ended.exitCode)
	default:
		return err
	}
}
