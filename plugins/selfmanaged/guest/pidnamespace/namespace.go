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
	pid    int
	orders *orders // process 1 reads them, so they live as long

	mu   sync.Mutex // guards dead: a PID may be another process's once it was waited for
	dead bool       // killed, or gone
}

// orders are what process 1 does, laid out as its assembler reads them: how it takes
// SIGCHLD, in the kernel's layout, and system calls.
type orders struct {
	sigchld [4]uintptr // the handler, no flags, no restorer, an empty mask
	calls   [maxCalls + 1]call
}

// call is a system call: its number, of which process 1 makes what it returned, and its
// arguments.
type call struct {
	number    uintptr
	arguments [5]uintptr
}

// noCall follows the last call.
const noCall = ^uintptr(0)

// startInit clones this process into one that is process 1 of a new PID namespace.
// The clone shares memory and descriptors. It never uses the stack, so it needs none: it
// ignores SIGCHLD, by which the kernel reaps what is orphaned in the namespace, makes its
// calls, and sleeps for ever.
func startInit(flags uintptr, orders *orders) (pid, errno uintptr)

// New makes a namespace, and returns when its process 1 has done these mounts. It shares
// the mount namespace of the calling thread. The caller must end it with Wait.
func New(mounts ...Mount) (*Namespace, error) {
	o := &orders{sigchld: [4]uintptr{1}} // SIG_IGN
	// Whoever enters the namespace opens it by process 1, which has our memory. Linux lets
	// nobody do so who is not root in full, once a thread of ours has been another user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("be dumpable: %w", err)
	}
	steps, err := newSteps(mounts)
	if err != nil {
		return nil, err
	}
	defer func() { _ = steps.close() }()
	for i, s := range steps.list {
		o.calls[i] = s.call
	}
	o.calls[len(steps.list)].number = noCall
	n, err := start(o)
	if err != nil {
		return nil, err
	}
	if err := steps.finish(o); err != nil {
		n.Kill()
		n.Wait()
		return nil, err
	}
	return n, nil
}

func start(o *orders) (*Namespace, error) {
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
	pid, errno := startInit(unix.CLONE_NEWPID|unix.CLONE_VM|unix.CLONE_FILES|uintptr(unix.SIGCHLD), o)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return nil, fmt.Errorf("unblock signals: %w", err)
	}
	if errno != 0 {
		return nil, fmt.Errorf("clone: %w", unix.Errno(errno))
	}
	return &Namespace{pid: int(pid), orders: o}, nil
}

// PID of process 1, among the processes of the caller.
func (n *Namespace) PID() int { return n.pid }

// Open opens the namespace, for setns. It looks in the caller's /proc.
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
