package volumes

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// userThreads is how many calls may be at the files of volumes at a time. Each piece of a
// call is one system call or a few.
const userThreads = 4

// user does things with the rights of the user that code runs as, on threads of its own
// that have no others: a change of rights takes from a thread what it is told at the death
// of the broker, so no other thread may have one.
type user struct {
	requests chan userRequest
	done     sync.WaitGroup
}

type userRequest struct {
	do     func() error
	result chan error
}

// newUser starts the threads. The caller owes a close.
func newUser(id int) (*user, error) {
	u := &user{requests: make(chan userRequest)}
	ready := make(chan error, userThreads)
	for range userThreads {
		u.done.Go(func() { u.serve(id, ready) })
	}
	var errs []error
	for range userThreads {
		errs = append(errs, <-ready)
	}
	if err := errors.Join(errs...); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// serve never unlocks its thread, which so ends with it.
func (u *user) serve(id int, ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// This is the thread that is told of the broker's death. As long as this one
		// has it, another goroutine gets another.
		var elsewhere sync.WaitGroup
		elsewhere.Go(func() { u.serve(id, ready) })
		elsewhere.Wait()
		return
	}
	err := takeRights(uintptr(id))
	ready <- err
	if err != nil {
		return
	}
	for req := range u.requests {
		req.result <- req.do()
	}
}

// takeRights gives this thread the rights of a user to files, and none of root's. Go's own
// wrappers would change all threads.
func takeRights(id uintptr) error {
	for _, call := range [][2]uintptr{{unix.SYS_SETGROUPS, 0}, {unix.SYS_SETFSGID, id}, {unix.SYS_SETFSUID, id}} {
		_, _, errno := unix.RawSyscall(call[0], call[1], 0, 0)
		if errno != 0 {
			return fmt.Errorf("take the rights of a user: %w", errno)
		}
	}
	// These say what was before, and not whether it worked.
	if now, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, id, 0, 0); now != id {
		return errors.New("take the rights of a user: the kernel refuses it")
	}
	return nil
}

// as calls do with the rights of the user.
func (u *user) as(do func() error) error {
	req := userRequest{do, make(chan error, 1)}
	u.requests <- req
	return <-req.result
}

// close ends the threads. No call of as may follow.
func (u *user) close() {
	close(u.requests)
	u.done.Wait()
}
