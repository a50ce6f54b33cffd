package runsc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// starter starts processes from one operating system thread that lives as long
// as the runtime, for two reasons. The parent-death signal is sent when the
// thread that forked ends, not the process. And the thread has a mount namespace
// of its own: what runsc mounts there, it leaves behind, and so it ends with us.
type starter struct {
	requests chan request
	done     sync.WaitGroup
	// thread is its ID, by which /proc has its mounts; 0 if they are those of the process.
	thread int
}

// request is something to do on the thread.
type request struct {
	do     func() error
	result chan error
}

// memory, if not "", is a directory for a file system in memory, which ends with the
// starter as well.
func newStarter(memory string) (*starter, error) {
	s := &starter{requests: make(chan request)}
	ready := make(chan error, 1)
	s.done.Go(func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		thread, err := isolateMounts(memory)
		s.thread = thread
		ready <- err
		if err != nil {
			return
		}
		for req := range s.requests {
			req.result <- req.do()
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return s, nil
}

// isolateMounts gives this thread a private mount namespace, with a file system in memory.
// An ordinary user cannot have one, and runsc mounts nothing for them outside of the
// sandbox.
func isolateMounts(memory string) (thread int, err error) {
	if os.Geteuid() != 0 {
		return 0, nil
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return 0, fmt.Errorf("make a mount namespace (%w): root without CAP_SYS_ADMIN cannot run runsc; give the broker the capability, or run it as an ordinary user", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("keep mounts private: %w", err)
	}
	return unix.Gettid(), mountMemory(memory)
}

// mountMemory mounts a file system in memory, of which the kernel writes nothing to the swap
// space, if it is one of version 6.4 or later, and which it bounds to half of the machine's
// memory.
func mountMemory(dir string) error {
	var err error
	for _, options := range []string{"mode=0700,noswap", "mode=0700"} {
		if err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); !errors.Is(err, unix.EINVAL) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("mount a file system in memory: %w", err)
	}
	return nil
}

// path is where the process finds what the starter and its children have at a path.
func (s *starter) path(theirs string) string {
	if s.thread == 0 {
		return theirs
	}
	return fmt.Sprintf("/proc/self/task/%d/root%s", s.thread, theirs)
}

func (s *starter) start(cmd *exec.Cmd) error { return s.run(cmd.Start) }

// run does something that takes no time to speak of: sandboxes are started on the same
// thread.
func (s *starter) run(do func() error) error {
	req := request{do, make(chan error, 1)}
	s.requests <- req
	return <-req.result
}

// InNamespace calls do on the thread that sandboxes are started from, in its mount
// namespace: what is mounted there, sandboxes can have (Mount), and it ends with the
// process. It must not be called after Close.
func (r *Runtime) InNamespace(do func() error) error { return r.starter.run(do) }

// close ends the thread, and so kills whatever it started that still runs.
func (s *starter) close() {
	close(s.requests)
	s.done.Wait()
}
