package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// initCommand is the guest's own argument that makes it an init process.
const initCommand = "init"

// Descriptors of an init process and, for the first two, of the interpreter.
const (
	requestFD = 3 // what to run; ends after it
	resultFD  = 4 // a byte when ready, then the JSON of main's return value
	statusFD  = 5 // how the interpreter ended; for init alone
)

// spawn says what an init process starts.
type spawn struct {
	Argv      []string
	Processes uint64
	FileSize  uint64
	// Leaves is a file that the interpreter may write, and that is removed with
	// it. It cannot do that itself if it is killed.
	Leaves string `json:"-"`
}

// exitStatus is what an init process reports.
type exitStatus struct {
	ExitCode  int   // 128 plus the signal, if one ended it
	PeakBytes int64 // of the interpreter and the children it waited for
}

// runInit is process 1 of one execution's PID namespace. It starts the
// interpreter as the unprivileged user, reaps what is orphaned, and ends with
// the interpreter; the kernel then kills whatever else lives in the namespace. It
// passes SIGINT on to the interpreter and what that runs in the foreground.
func runInit(encoded string) {
	if err := initMain(encoded); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

func initMain(encoded string) error {
	// Capabilities belong to a thread, and the interpreter inherits those of
	// the one that forks it.
	runtime.LockOSThread()
	var s spawn
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return fmt.Errorf("decode what to start: %w", err)
	}
	unix.CloseOnExec(statusFD)
	// The /proc of the whole sandbox goes away, and is not only covered:
	// whoever has it can reach every process of the same user through it.
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /proc: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break // past the last capability of this kernel
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_NPROC:  s.Processes,
		unix.RLIMIT_FSIZE:  s.FileSize,
		unix.RLIMIT_NOFILE: 1024,
		unix.RLIMIT_CORE:   0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	if err := forbidNamespaces(); err != nil {
		return err
	}
	// Before there is anybody to pass it to, so that it never ends init itself.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT)
	request, result := os.NewFile(requestFD, "request"), os.NewFile(resultFD, "result")
	child, err := os.StartProcess(s.Argv[0], s.Argv, &os.ProcAttr{
		Dir:   WorkspaceDir,
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, request, result},
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Credential: &syscall.Credential{Uid: UserID, Gid: UserID},
		},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	// The interpreter's pipes shall end with it, so init keeps no copy.
	_ = request.Close()
	_ = result.Close()
	go func() {
		for range interrupted {
			_ = unix.Kill(-child.Pid, unix.SIGINT) // it leads a group, and may have ended
		}
	}()
	status, err := reapUntil(child.Pid)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.NewFile(statusFD, "status")).Encode(status)
}

// reapUntil waits for children, orphans included, until pid has ended.
func reapUntil(pid int) (exitStatus, error) {
	for {
		var ws unix.WaitStatus
		var usage unix.Rusage
		got, err := unix.Wait4(-1, &ws, 0, &usage)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return exitStatus{}, fmt.Errorf("wait: %w", err)
		case got != pid:
			continue
		}
		status := exitStatus{ExitCode: ws.ExitStatus(), PeakBytes: usage.Maxrss << 10}
		if ws.Signaled() {
			status.ExitCode = 128 + int(ws.Signal())
		}
		return status, nil
	}
}
