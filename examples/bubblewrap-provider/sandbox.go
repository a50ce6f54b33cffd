package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// sandbox says what every sandbox is like.
type sandbox struct {
	bwrap    string   // path of the program
	readOnly []string // paths of the host, beside /usr
	memory   uint64   // bytes, of each process
}

// program is what to run in a sandbox.
type program struct {
	argv           []string
	env            map[string]string
	workspace      string            // of the host, to be /workspace; empty for none
	files          map[string]string // to be made in the sandbox: content by path
	stdout, stderr io.Writer
}

// describe tells bwrap what the sandbox is like.
func (s sandbox) describe(p program, to *bwrapCall) {
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
	to.option("--proc", "/proc", "--dev", "/dev", "--size", "67108864", "--tmpfs", "/tmp")
	for path, content := range p.files {
		to.option("--file", to.content(content), path)
	}
	if p.workspace != "" {
		to.option("--bind", p.workspace, "/workspace", "--chdir", "/workspace")
	}
	to.option("--remount-ro", "/", "--clearenv")
	for name, value := range p.env {
		to.option("--setenv", name, value)
	}
}

// run runs a program to its end, or to that of ctx, and returns when all processes
// of the sandbox have ended. started is called as soon as the program may run.
func (s sandbox) run(ctx context.Context, p program, started func(*process)) (outcome, error) {
	running, err := s.start(p)
	if err != nil {
		return outcome{}, err
	}
	started(running)
	defer context.AfterFunc(ctx, running.kill)()
	ended := running.wait()
	if !ended.begun && ctx.Err() == nil {
		return outcome{}, errors.New("bwrap could not make the sandbox")
	}
	return ended, nil
}

// try makes an empty sandbox and says why that does not work.
func (s sandbox) try(ctx context.Context) error {
	var said bytes.Buffer
	ended, err := s.run(ctx, program{argv: []string{"/usr/bin/true"}, stdout: &said, stderr: &said}, func(*process) {})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && ended.exitCode == 0:
		return nil
	case err == nil:
		err = fmt.Errorf("exit code %d", ended.exitCode)
	}
	return fmt.Errorf("bwrap makes no sandbox on this machine: %s", cmp.Or(strings.TrimSpace(said.String()), err.Error()))
}
