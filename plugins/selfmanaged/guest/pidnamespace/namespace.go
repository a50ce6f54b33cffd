package pidnamespace

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a PID namespace. Its end is the end of every process in it.
type Namespace struct {
	pid int

	mu   sync.Mutex // guards dead: a PID may be another process's once it was waited for
	dead bool       // killed, or gone
}

// ignore has the kernel's layout of a signal's action: the handler SIG_IGN, no flags, no
// restorer, an empty mask.
var ignore = [4]uintptr{1}

// startInit clones this process into one that is process 1 of a new PID namespace.
// The clone shares memory and descriptors. It never uses the stack, so it needs none: it
// ignores SIGCHLD, by which the kernel reaps what is orphaned in the namespace, and
// sleeps for ever.
func startInit(flags uintptr, ignore *[4]uintptr) (pid, errno uintptr)

// New makes a namespace. The caller must end it with Wait.
func New() (*Namespace, error) {
	// The clone must take no signal: the handlers are those of the Go runtime, to which
	// it is no thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return nil, fmt.Errorf("block signals: %w", err)
	}
	pid, errno := startInit(unix.CLONE_NEWPID|unix.CLONE_VM|unix.CLONE_FILES|uintptr(unix.SIGCHLD), &ignore)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return nil, fmt.Errorf("unblock signals: %w", err)
	}
	if errno != 0 {
		return nil, fmt.Errorf("clone: %w", unix.Errno(errno))
	}
	return &Namespace{pid: int(pid)}, nil
}

// PID of process 1, among the processes of the caller.
func (n *Namespace) PID() int { return n.pid }

// Open opens the namespace, for setns.
func (n *Namespace) Open() (*os.File, error) {
	return os.Open("/proc/" + strconv.Itoa(n.pid) + "/ns/pid")
}

// Kill ends every process in the namespace. It may be called at any time, and more than
// once.
func (n *Namespace) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.dead {
		n.dead = unix.Kill(n.pid, unix.SIGKILL) == nil
	}
}

// Wait waits for the end of process 1, which the kernel lets go only after every other
// process of the namespace. It is called once.
func (n *Namespace) Wait() {
	n.mu.Lock()
	killed := n.dead
	n.mu.Unlock()
	if !killed {
		// The process is left as a zombie until the lock is held, so that no signal of
		// Kill can meet another process.
		for unix.Waitid(unix.P_PID, n.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.dead = true
	}
	for {
		if _, err := unix.Wait4(n.pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}
