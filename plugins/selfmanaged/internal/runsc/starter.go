package runsc

import (
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
	requests chan startRequest
	done     sync.WaitGroup
}

type startRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newStarter() (*starter, error) {
	s := &starter{requests: make(chan startRequest)}
	ready := make(chan error, 1)
	s.done.Go(func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		err := isolateMounts()
		ready <- err
		if err != nil {
			return
		}
		for req := range s.requests {
			req.result <- req.cmd.Start()
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return s, nil
}

// isolateMounts gives this thread a private mount namespace. An ordinary user
// cannot have one, and runsc mounts nothing for them outside of the sandbox.
func isolateMounts() error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace (%w): root without CAP_SYS_ADMIN cannot run runsc; give the broker the capability, or run it as an ordinary user", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	return nil
}

func (s *starter) start(cmd *exec.Cmd) error {
	req := startRequest{cmd, make(chan error, 1)}
	s.requests <- req
	return <-req.result
}

// close ends the thread, and so kills whatever it started that still runs.
func (s *starter) close() {
	close(s.requests)
	s.done.Wait()
}
