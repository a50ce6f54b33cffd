package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// initCommand is the argument that makes the guest an init process.
const initCommand = "init"

// Descriptors of an init process beside the program's first three. The program's
// further ones follow.
const (
	controlFD = 3 // what to start, then signals
	statusFD  = 4 // what became of it
	extraFD   = 5
)

// order is what an init process is told, one after the other.
type order struct {
	Start  *Spec `json:",omitempty"`
	Extra  int   `json:",omitempty"` // descriptors
	Signal int   `json:",omitempty"`
	// Foreground sends it to the program's process group alone.
	Foreground bool `json:",omitempty"`
}

// report is what an init process tells.
type report struct {
	Refused *Refused `json:",omitempty"`
	Exit    *Exit    `json:",omitempty"` // neither: the program has started
}

// Init makes this process the init process of a program if it was started to be
// one, and does not return then.
func Init() {
	if len(os.Args) != 2 || os.Args[1] != initCommand {
		return
	}
	if err := initMain(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// initMain starts the program as the unprivileged user, reaps what is orphaned,
// and ends with the program; the kernel then kills whatever else lives in the
// namespace.
func initMain() error {
	// Capabilities belong to a thread, and the program inherits those of the one
	// that forks it.
	runtime.LockOSThread()
	control, status := os.NewFile(controlFD, "control"), os.NewFile(statusFD, "status")
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(statusFD)
	orders, reports := json.NewDecoder(control), json.NewEncoder(status)
	var o order
	if err := orders.Decode(&o); err != nil || o.Start == nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	if err := confine(*o.Start); err != nil {
		return err
	}
	pid, err := start(*o.Start, o.Extra)
	if refused, ok := errors.AsType[*Refused](err); ok {
		return reports.Encode(report{Refused: refused})
	} else if err != nil {
		return err
	}
	if err := reports.Encode(report{}); err != nil {
		return fmt.Errorf("report the start: %w", err)
	}
	go forwardSignals(orders, pid)
	exit, err := reapUntil(pid)
	if err != nil {
		return err
	}
	return reports.Encode(report{Exit: &exit})
}

// confine takes from this process what the program shall not inherit.
func confine(s Spec) error {
	// The /proc of the whole sandbox goes away, and is not only covered:
	// whoever has it can reach every process of the same user through it.
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /proc: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := mountTerminals(); err != nil {
		return err
	}
	if s.PrivateTmp {
		if err := mountPrivateTmp(); err != nil {
			return err
		}
	}
	var kept []uintptr
	if s.Root {
		kept = buildCapabilities
	}
	if err := dropCapabilities(kept...); err != nil {
		return err
	}
	if err := s.Limits.Set(0); err != nil {
		return err
	}
	return forbidNamespaces()
}

// buildCapabilities are those of a program that makes a layer of an image: it may do to files
// what root may, and become other users. Under gVisor they are capabilities of its kernel. It
// cannot mount, and so cannot uncover what the sandbox covers.
var buildCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_CHROOT, unix.CAP_NET_BIND_SERVICE,
}

// BuildCapabilities are what a sandbox needs beside those of every guest so that programs in it
// can have Spec.Root.
func BuildCapabilities() []string {
	return []string{"CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID", "CAP_SYS_CHROOT", "CAP_NET_BIND_SERVICE"}
}

// dropCapabilities keeps what this thread starts from getting any, but for those.
func dropCapabilities(kept ...uintptr) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(kept, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			return nil // past the last capability of this kernel
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// mountPrivateTmp covers /tmp, in this mount namespace alone, by one of the same
// size.
func mountPrivateTmp() error {
	var size unix.Statfs_t
	if err := unix.Statfs("/tmp", &size); err != nil {
		return fmt.Errorf("measure /tmp: %w", err)
	}
	options := fmt.Sprintf("mode=1777,size=%d", int64(size.Blocks)*size.Bsize)
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount /tmp: %w", err)
	}
	return nil
}

// start starts the program. Its error is a *Refused if the request is at fault.
func start(s Spec, extra int) (pid int, err error) {
	path, err := find(s)
	if err != nil {
		return 0, err
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	if s.Terminal != nil {
		theirs, err := handOverTerminal(extraFD+extra, *s.Terminal)
		if err != nil {
			return 0, err
		}
		defer theirs.Close()
		files = []*os.File{theirs, theirs, theirs}
	}
	for i := range extra {
		unix.CloseOnExec(extraFD + i) // as which number the program has it, is another matter
		files = append(files, os.NewFile(uintptr(extraFD+i), "extra"))
	}
	user := &syscall.Credential{Uid: UserID, Gid: UserID}
	if s.Root {
		user = nil // as it is, less the capabilities that are dropped
	}
	child, err := os.StartProcess(path, s.Argv, &os.ProcAttr{
		Env:   s.Env,
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Setctty:    s.Terminal != nil, // Ctty 0 is standard input
			Credential: user,
		},
	})
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return 0, &Refused{Message: "the sandbox has no room for another process"}
	case err != nil:
		return 0, &Refused{Field: fieldArgv, Message: fmt.Sprintf("%.200q cannot be started: %v", s.Argv[0], reason(err))}
	}
	// The program's pipes shall end with it, or when it closes them, so init
	// keeps only those that it complains through.
	_ = os.Stdin.Close()
	for _, f := range files[3:] {
		_ = f.Close()
	}
	return child.Pid, nil
}

// forwardSignals sends on what the guest sends. Its own end, with the guest's, is
// left to the end of everything.
func forwardSignals(orders *json.Decoder, program int) {
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "sandbox: read signals:", err)
			}
			return
		}
		to := -1 // everything in the namespace but init
		if o.Foreground {
			to = -program // it leads a group
		}
		_ = unix.Kill(to, unix.Signal(o.Signal)) // there may be nothing left
	}
}

// reapUntil waits for children, orphans included, until pid has ended.
func reapUntil(pid int) (Exit, error) {
	for {
		var ws unix.WaitStatus
		var usage unix.Rusage
		got, err := unix.Wait4(-1, &ws, 0, &usage)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return Exit{}, fmt.Errorf("wait: %w", err)
		case got != pid:
			continue
		}
		return ExitOf(ws, usage.Maxrss<<10), nil
	}
}
