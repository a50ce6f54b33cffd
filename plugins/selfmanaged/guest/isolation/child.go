package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/pidnamespace"
)

// Child is a program with its descendants, alone in namespaces as a Process is, but
// without an init process of its own: process 1 there is a clone of the guest (package
// pidnamespace). So its parent is whoever started it, who says with End what became of it.
type Child struct {
	namespace *pidnamespace.Namespace
	pid       int

	killed atomic.Bool
	mu     sync.Mutex    // guards gone: a PID may be another's once it was waited for
	gone   bool          // the program
	exited chan struct{} // closed when exit is valid
	exit   Exit
	waited sync.Once
}

// NewChild returns a Child that runs as a process in a namespace, which it takes over.
func NewChild(namespace *pidnamespace.Namespace, pid int) *Child {
	return &Child{namespace: namespace, pid: pid, exited: make(chan struct{})}
}

// MayStartChild says whether StartChild can put limits in force for a process of another
// user, as it does. The guest has no CAP_SYS_RESOURCE where the kernel is the host's.
func MayStartChild() bool {
	var sets [2]unix.CapUserData // of 32 capabilities each
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err := unix.Capget(&header, &sets[0])
	return err == nil && sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// StartChild starts a program with an absolute path, which gets neither a terminal nor a
// directory nor a /tmp of its own, and whose Stdout and Stderr must be given. It costs
// what starting the program does; Start costs a program of Go as well. It needs
// MayStartChild. The caller must end it with Wait.
func StartChild(s Spec, streams Streams) (*Child, error) {
	type result struct {
		child   *Child
		process *os.Process
		err     error
	}
	started := make(chan result)
	go func() {
		// The thread has namespaces, a filter and few rights from now on, which what it
		// starts inherits. It is never unlocked: it ends with the goroutine.
		runtime.LockOSThread()
		child, process, err := startHere(s, streams)
		started <- result{child, process, err}
	}()
	r := <-started
	if r.err != nil {
		return nil, r.err
	}
	go r.child.reap(r.process)
	if err := s.Limits.Set(r.child.pid); err != nil {
		r.child.Kill()
		r.child.Wait()
		return nil, err
	}
	return r.child, nil
}

// startHere makes this thread one that is good for nothing but starting the program, and
// starts it.
func startHere(s Spec, streams Streams) (*Child, *os.Process, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWIPC); err != nil {
		return nil, nil, fmt.Errorf("make namespaces: %w", err)
	}
	namespace, err := pidnamespace.New(
		pidnamespace.Mount{Type: "proc", Target: "/proc", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, Instead: true},
		pidnamespace.Mount{Type: "devpts", Target: terminalsDir, Flags: unix.MS_NOSUID | unix.MS_NOEXEC, Options: terminalsOptions, IfKnown: true},
	)
	if err != nil {
		return nil, nil, err
	}
	process, err := startIn(s, streams)
	if err != nil {
		namespace.Kill()
		namespace.Wait()
		return nil, nil, err
	}
	return NewChild(namespace, process.Pid), process, nil
}

// startIn starts the program in the namespace of which this thread has the /proc.
func startIn(s Spec, streams Streams) (*os.Process, error) {
	namespace, err := unix.Open("/proc/1/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the namespace: %w", err)
	}
	err = unix.Setns(namespace, unix.CLONE_NEWPID)
	if err := errors.Join(err, unix.Close(namespace)); err != nil {
		return nil, fmt.Errorf("enter the namespace: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return nil, err
	}
	if err := forbidNamespaces(); err != nil {
		return nil, err
	}
	stdin := streams.Stdin
	if stdin == nil {
		if stdin, err = os.Open(os.DevNull); err != nil {
			return nil, err
		}
		defer stdin.Close()
	}
	process, err := os.StartProcess(s.Argv[0], s.Argv, &os.ProcAttr{
		Dir:   WorkspaceDir,
		Env:   s.Env,
		Files: append([]*os.File{stdin, streams.Stdout, streams.Stderr}, streams.Extra...),
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: UserID, Gid: UserID}},
	})
	if err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	return process, nil
}

// reap waits for the end of a process that this one has started.
func (c *Child) reap(process *os.Process) {
	state, err := process.Wait()
	if err != nil { // nobody else waits for it
		c.End(unix.WaitStatus(unix.SIGKILL), 0)
		return
	}
	c.End(unix.WaitStatus(state.Sys().(syscall.WaitStatus)), state.SysUsage().(*syscall.Rusage).Maxrss<<10)
}

// End is told how the program has ended, as who waited for it knows, and with what peak of
// memory in bytes. It ends what the program left running.
func (c *Child) End(status unix.WaitStatus, peakBytes int64) {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.exit = ExitOf(status, peakBytes)
	close(c.exited)
	c.namespace.Kill()
}

// Roots are the processes from which all processes of the program descend: itself, and
// process 1 of its namespace for what it has orphaned.
func (c *Child) Roots() []int { return []int{c.pid, c.namespace.PID()} }

// Init is process 1 of the program's namespace.
func (c *Child) Init() int { return c.namespace.PID() }

// Started returns at once: it runs.
func (c *Child) Started(context.Context) error { return nil }

// Exit returns how the program ended, once it has. ok is false if it was killed.
func (c *Child) Exit() (exit Exit, ok bool) {
	<-c.exited
	if c.exit.Signal == int(unix.SIGKILL) && c.killed.Load() {
		return Exit{}, false
	}
	return c.exit, true
}

// Interrupt sends SIGINT to the program's process group, as a terminal does. One that
// has ended does not mind.
func (c *Child) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		_ = unix.Kill(-c.pid, unix.SIGINT) // it leads its group
	}
}

// Kill ends every process of the program. It may be called at any time, and more than
// once.
func (c *Child) Kill() {
	c.killed.Store(true)
	c.namespace.Kill()
}

// Wait waits until every process of the program is gone. It may be called twice.
func (c *Child) Wait() { c.waited.Do(c.namespace.Wait) }
