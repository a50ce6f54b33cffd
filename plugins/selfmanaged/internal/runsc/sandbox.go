package runsc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/tail"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/cgroup"
)

// exitGrace is how long a sandbox may take to end by itself once its input has
// ended. It then cleans up after itself, which is cheaper than doing it for it.
const exitGrace = 500 * time.Millisecond

// killTimeout is how long a sandbox that was killed may take to be gone, which
// takes moments unless the kernel is in trouble.
const killTimeout = 5 * time.Second

// Sandbox is one running sandbox.
type Sandbox struct {
	ID      string
	runtime *Runtime
	flags   []string // of every command of runsc that is about it
	cmd     *exec.Cmd
	conn    *stdio.Conn
	stderr  tail.Buffer
	group   *cgroup.Group
	bundle  string
	exited  chan struct{}
	oom     bool // valid after exited

	like string // see Runtime.likeness
	// ownRoot is where what privateRoot has made is; "" for nothing.
	ownRoot string

	lending sync.Mutex
	lent    int64 // checkpoints of it that its control group holds

	destroyOnce sync.Once
	destroyErr  error
}

// Start makes a sandbox and returns at once; whoever speaks to the guest over
// Conn finds out when it is ready. ID must be new, [a-z0-9], and no ID may be a
// prefix of another: runsc resolves prefixes. The caller owes a Destroy.
func (r *Runtime) Start(id string) (*Sandbox, error) { return r.start(id, nil, r.usual(), "run") }

// StartTemplate is Start with a root file system and limits of its own.
func (r *Runtime) StartTemplate(id string, of Template) (*Sandbox, error) {
	return r.start(id, nil, of, "run")
}

// Template is what a sandbox is started with.
type Template struct {
	// Rootfs is a directory that is shown whole, read-only. It has directories for what is
	// mounted there, and a file where the guest is: see MountPoints. "" for what the
	// sandboxes of the runtime share.
	Rootfs string
	Limits confine.Limits
	// Mounts are directories that it shares with others.
	Mounts []Mount
	// Writable, if it is not nil, has the root file system be one that can be written to. What
	// is written is in a file without a name, and ends with the sandbox: see Sandbox.Changes.
	// Nothing is shared with others then, and commands run as root.
	Writable *Writable
}

// Writable is room for what is written to a root file system.
type Writable struct {
	// Dir of this machine where the file is.
	Dir string
	MB  int64
}

// usual is what a sandbox is started with that has no template.
func (r *Runtime) usual() Template { return Template{Limits: r.limits} }

// Mount is a directory that a sandbox shares with this machine and with other sandboxes.
// All see at once what one of them writes.
type Mount struct {
	// Source is absolute, in the namespace of Runtime.InNamespace.
	Source string
	// Destination in the sandbox, absolute.
	Destination string
	ReadOnly    bool
}

// StartWith is Start for a sandbox that has directories.
func (r *Runtime) StartWith(id string, mounts []Mount) (*Sandbox, error) {
	of := r.usual()
	of.Mounts = mounts
	return r.start(id, nil, of, "run")
}

// start starts a sandbox with a command of runsc; env is for its guest.
func (r *Runtime) start(id string, env []string, of Template, command ...string) (*Sandbox, error) {
	s := &Sandbox{ID: id, runtime: r, flags: r.flagsFor(of), exited: make(chan struct{})}
	cgroupsPath := ""
	if r.tree != nil {
		group, err := r.tree.Create(id, cgroup.Limits{
			MemoryBytes: of.Limits.HostMemory(), CPUs: of.Limits.CPUs, Processes: of.Limits.HostProcesses(),
		})
		if err != nil {
			return nil, err
		}
		s.group, cgroupsPath = group, group.Path()
	}
	bundle, err := s.writeBundle(cgroupsPath, env, of)
	if err == nil {
		s.bundle = bundle
		s.like, err = r.likeness(bundle)
	}
	if err == nil {
		err = s.start(command)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start runsc: %w", err), s.removeGroup(context.Background()), s.clear())
	}
	return s, nil
}

// removeGroup removes the control group, once nothing is in it that shall live.
func (s *Sandbox) removeGroup(ctx context.Context) error {
	if s.group == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := s.group.Remove(ctx); err != nil {
		return fmt.Errorf("remove the cgroup of sandbox %s: %w", s.ID, err)
	}
	return nil
}

func (s *Sandbox) start(command []string) error {
	stdinR, stdinW, err := os.Pipe()
	if err != nil {
		return err
	}
	stdoutR, stdoutW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdinR.Close(), stdinW.Close())
	}
	if !s.runtime.rootless {
		widen(stdinW)
		widen(stdoutR)
	}
	s.conn = stdio.NewConn(stdoutR, stdinW)
	s.cmd = exec.Command(s.runtime.binary, slices.Concat(s.flags, command, []string{"--bundle=" + s.bundle, s.ID})...)
	s.cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + s.bundle}
	s.cmd.Dir = "/"
	s.cmd.Stdin, s.cmd.Stdout = stdinR, stdoutW
	s.cmd.Stderr = &s.stderr
	// The sandbox keeps copies of stderr; Wait shall not wait for them.
	s.cmd.WaitDelay = exitGrace
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = s.runtime.starter.start(s.cmd)
	err = errors.Join(err, stdinR.Close(), stdoutW.Close())
	if err != nil {
		return errors.Join(err, s.conn.Close())
	}
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // how it ended is told by the guest, the cgroup and stderr
		s.oom = s.group != nil && s.group.OutOfMemory()
	}()
	return nil
}

// pipeBytes is how much a pipe to or from the guest holds: Linux gives no more to those
// without CAP_SYS_RESOURCE. Its memory is taken only for what is in it. With Linux's own
// 64 KiB, writer and reader wait for each other sixteen times in each chunk of a file.
const pipeBytes = 1 << 20

// widen makes a pipe as large as pipeBytes. A pipe that stays as it was is slower, and
// right. It is not for ordinary users, whose pipes have a bound on what all of them hold:
// above that, each further pipe gets 8 KiB.
func widen(pipe *os.File) {
	raw, err := pipe.SyscallConn() // Fd would make it a blocking one, which Close does not wake
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeBytes) })
}

// Conn is the connection to the guest.
func (s *Sandbox) Conn() *stdio.Conn { return s.conn }

// Exited is closed when the sandbox has ended, for whatever reason.
func (s *Sandbox) Exited() <-chan struct{} { return s.exited }

// OutOfMemory reports whether the host's kernel ended it for memory. It waits
// for the end of the sandbox, or of ctx.
func (s *Sandbox) OutOfMemory(ctx context.Context) bool {
	select {
	case <-s.exited:
		return s.oom
	case <-ctx.Done():
		return false
	}
}

// Stderr is the last of what runsc and the guest wrote, for logs.
func (s *Sandbox) Stderr() string { return s.stderr.String() }

// Pause freezes every process of the sandbox.
func (s *Sandbox) Pause(ctx context.Context) error { return s.control(ctx, "pause") }

// Resume lets the processes of the sandbox go on.
func (s *Sandbox) Resume(ctx context.Context) error { return s.control(ctx, "resume") }

// control has another runsc speak to the one that runs the sandbox.
func (s *Sandbox) control(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, s.runtime.binary, append(append([]string{}, s.flags...), command, s.ID)...)
	cmd.Env, cmd.Dir = s.cmd.Env, "/"
	cmd.WaitDelay = exitGrace
	var said tail.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("runsc %s: %w: %s", command, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// Destroy ends the sandbox and removes what it left. It may be called more than
// once; each call returns when the sandbox is gone. When ctx ends, the sandbox is
// killed at once, not left.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.destroyOnce.Do(func() { s.destroyErr = s.destroy(ctx) })
	return s.destroyErr
}

func (s *Sandbox) destroy(ctx context.Context) error {
	_ = s.conn.Close() // the guest ends with its input
	grace := time.NewTimer(exitGrace)
	defer grace.Stop()
	select {
	case <-s.exited:
	case <-grace.C:
		s.kill()
	case <-ctx.Done():
		s.kill()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	select {
	case <-s.exited:
	case <-ctx.Done():
		return fmt.Errorf("sandbox %s does not die: %w", s.ID, ctx.Err())
	}
	return errors.Join(s.removeGroup(ctx), s.clear())
}

// kill ends runsc; its sandbox and gofer processes carry a parent-death signal.
func (s *Sandbox) kill() {
	_ = unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL)
	if s.group != nil {
		s.group.Kill()
	}
}

// clear removes the files of the sandbox. A runsc that was killed leaves its
// state behind, and one that started a copy always does.
func (s *Sandbox) clear() error {
	var errs []error
	if s.ownRoot != "" {
		errs = append(errs, s.removeRoot())
	}
	if s.bundle != "" {
		errs = append(errs, os.RemoveAll(s.bundle))
	}
	leftovers, _ := filepath.Glob(filepath.Join(s.runtime.root, s.ID+"_*"))
	for _, path := range append(leftovers, filepath.Join(s.runtime.root, "runsc-"+s.ID+".sock")) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}
