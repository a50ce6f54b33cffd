package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// UserID is the user and group that user code runs as.
const UserID = 1000

// WorkspaceDir is where user code runs and keeps its files, inside the sandbox.
const WorkspaceDir = "/workspace"

// Limits of each program.
type Limits struct {
	// Processes that the user may have in the whole sandbox.
	Processes uint64
	// FileSize in bytes.
	FileSize uint64
}

// Set puts the limits, and those that are the same for all, in force for a process; 0
// is the caller.
func (l Limits) Set(pid int) error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_NPROC:  l.Processes,
		unix.RLIMIT_FSIZE:  l.FileSize,
		unix.RLIMIT_NOFILE: 1024,
		unix.RLIMIT_CORE:   0,
	} {
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	return nil
}

// Spec says what to start.
type Spec struct {
	// Argv is the program and its arguments. A name without a slash is looked up
	// along the PATH in Env, as the user that it will run as.
	Argv []string
	// Env is the whole environment; see Environment.
	Env []string
	// Dir to start in; empty for WorkspaceDir.
	Dir string
	// Terminal, if it is given, is the size of a terminal that is made for the
	// program: it controls it, and stands in for its standard streams.
	Terminal *unix.Winsize `json:",omitempty"`
	// Root has the program run as root, with BuildCapabilities: it makes a layer of an image.
	Root bool `json:",omitempty"`
	// PrivateTmp gives the program an empty /tmp that nobody else sees.
	PrivateTmp bool
	Limits     Limits
}

// Streams are the program's ends of its descriptors. The caller closes its own
// copies after Start.
type Streams struct {
	// Stdin, Stdout and Stderr; /dev/null for nil.
	Stdin, Stdout, Stderr *os.File
	// Extra descriptors, from 3 on.
	Extra []*os.File
}

// Process is a program with its descendants.
type Process struct {
	init    *exec.Cmd
	mu      sync.Mutex // guards control
	control *os.File
	status  *os.File
	reports *json.Decoder // of status
	// terminal is where init sends our end of the program's terminal; nil without one.
	terminal *os.File

	waitOnce sync.Once
}

// Exit is how a program ended.
type Exit struct {
	// Code is 128 plus the signal, if one ended it.
	Code int
	// Signal that ended it, else 0.
	Signal int
	// PeakBytes of memory of the program and the children it waited for.
	PeakBytes int64
}

// ExitOf tells how a program ended from what the kernel says of it.
func ExitOf(status unix.WaitStatus, peakBytes int64) Exit {
	exit := Exit{Code: status.ExitStatus(), PeakBytes: peakBytes}
	if status.Signaled() {
		exit.Signal = int(status.Signal())
		exit.Code = 128 + exit.Signal
	}
	return exit
}

// Refused is why a program cannot be started.
type Refused struct {
	// Field of Spec that is at fault, as a request names it: argv or cwd. It is
	// empty if a limit stood in the way.
	Field   string
	Message string
}

func (r *Refused) Error() string { return r.Message }

// Start starts a program. The caller must end it with Wait.
func Start(s Spec, streams Streams) (*Process, error) {
	controlRead, controlWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	defer controlRead.Close()
	statusRead, statusWrite, err := os.Pipe()
	if err != nil {
		_ = controlWrite.Close()
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	defer statusWrite.Close()
	p := &Process{control: controlWrite, status: statusRead, reports: json.NewDecoder(statusRead)}
	extra := streams.Extra
	if s.Terminal != nil {
		ours, theirs, err := socketPair()
		if err != nil {
			p.close()
			return nil, fmt.Errorf("make sockets: %w", err)
		}
		defer theirs.Close()
		p.terminal, extra = ours, append(extra[:len(extra):len(extra)], theirs)
	}
	// /proc belongs to the PID namespace of whoever mounted it, hence a mount
	// namespace too. Shared memory and queues end with their namespace; without
	// one of its own a program would leave them to the next.
	p.init = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"sandbox-guest", initCommand}, Dir: "/",
		Env:         []string{"GOMAXPROCS=2", "GOTRACEBACK=single"}, // nothing of the guest's, nor of the program's
		ExtraFiles:  append([]*os.File{controlRead, statusWrite}, extra...),
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC},
	}
	// A nil *os.File in an interface is not nil.
	if streams.Stdin != nil {
		p.init.Stdin = streams.Stdin
	}
	if streams.Stdout != nil {
		p.init.Stdout = streams.Stdout
	}
	if streams.Stderr != nil {
		p.init.Stderr = streams.Stderr
	}
	if err := p.init.Start(); err != nil {
		p.close()
		return nil, fmt.Errorf("start init: %w", err)
	}
	if err := p.tell(order{Start: &s, Extra: len(streams.Extra)}); err != nil {
		p.Kill()
		p.Wait()
		return nil, fmt.Errorf("tell init what to start: %w", err)
	}
	return p, nil
}

// Roots are the processes from which all processes of the program descend: its init.
func (p *Process) Roots() []int { return []int{p.Init()} }

// Init is process 1 of the program's namespace.
func (p *Process) Init() int { return p.init.Process.Pid }

// Started returns when the program runs, or with a *Refused if it cannot. When
// ctx ends, everything is killed. It must be called at most once, and before Exit.
func (p *Process) Started(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.Kill)()
	var r report
	switch err := p.reports.Decode(&r); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("init ended before the program was started: %w", err)
	case r.Refused != nil:
		return r.Refused
	}
	return nil
}

// Exit returns how the program ended, once it has. ok is false if it was killed
// together with its init, or never started.
func (p *Process) Exit() (exit Exit, ok bool) {
	for {
		var r report
		if err := p.reports.Decode(&r); err != nil || r.Refused != nil {
			return Exit{}, false
		}
		if r.Exit != nil {
			return *r.Exit, true
		}
	}
}

// Signal sends a signal to every process of the program. SIGKILL also ends init,
// so that nothing is left to be started.
func (p *Process) Signal(signal unix.Signal) error {
	if signal == unix.SIGKILL {
		p.Kill()
		return nil
	}
	return p.tell(order{Signal: int(signal)})
}

// Interrupt sends SIGINT to the program's process group, as a terminal does: to
// the program and what it runs in the foreground. One that has ended does not mind.
func (p *Process) Interrupt() { _ = p.tell(order{Signal: int(unix.SIGINT), Foreground: true}) }

// Kill ends every process of the program. It may be called at any time before
// Wait returns, and more than once.
func (p *Process) Kill() { _ = p.init.Process.Kill() }

// Wait reaps init, which the kernel lets go only after every other process of its
// namespace. It may be called twice.
func (p *Process) Wait() {
	p.waitOnce.Do(func() {
		_ = p.init.Wait()
		p.close()
	})
}

func (p *Process) close() {
	_ = p.status.Close()
	if p.terminal != nil {
		_ = p.terminal.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.control.Close()
}

func (p *Process) tell(o order) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return json.NewEncoder(p.control).Encode(o)
}
