package runsc

import (
	"os/exec"
	"runtime"
	"sync"
)

// starter starts processes from one operating system thread that lives as long
// as the runtime: the parent-death signal is sent when the thread that forked
// ends, not the process.
type starter struct {
	requests chan startRequest
	done     sync.WaitGroup
}

type startRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newStarter() *starter {
	s := &starter{requests: make(chan startRequest)}
	s.done.Go(func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		for req := range s.requests {
			req.result <- req.cmd.Start()
		}
	})
	return s
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
