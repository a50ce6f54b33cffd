package pidnamespace

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mount is a file system that a process in the namespace has to mount: /proc shows the
// processes of the namespace of whoever mounted it.
type Mount struct {
	Type, Target, Options string
	Flags                 uintptr
	// Instead has what is at Target unmounted before: what is only covered is still there.
	Instead bool
	// IfKnown lets it be missing where the kernel does not know the options.
	IfKnown bool
}

// maxCalls is enough for two mounts, what they replace, and the word that they are done.
const maxCalls = 5

// step is one of the system calls that process 1 makes.
type step struct {
	call
	does     string
	mayError unix.Errno // 0 for none
}

// steps are the system calls of process 1 for mounts.
type steps struct {
	list []step
	done *os.File // an eventfd, which the last of them writes to; nil if there are none
	// pin keeps from the garbage collector what the calls' arguments point to.
	pin runtime.Pinner
}

func newSteps(mounts []Mount) (*steps, error) {
	s := &steps{}
	if len(mounts) == 0 {
		return s, nil
	}
	for _, m := range mounts {
		if err := s.mount(m); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make an eventfd: %w", err), s.close())
	}
	s.done = os.NewFile(uintptr(fd), "eventfd")
	one := &[8]byte{1}
	s.pin.Pin(one)
	s.list = append(s.list, step{
		call: call{unix.SYS_WRITE, [5]uintptr{uintptr(fd), uintptr(unsafe.Pointer(one)), 8}},
		does: "say that all is mounted",
	})
	if len(s.list) > maxCalls {
		return nil, errors.Join(fmt.Errorf("%d mounts are too many", len(mounts)), s.close())
	}
	return s, nil
}

func (s *steps) mount(m Mount) error {
	var texts [3]uintptr
	for i, text := range []string{m.Type, m.Target, m.Options} {
		p, err := unix.BytePtrFromString(text)
		if err != nil {
			return fmt.Errorf("mount %q: %w", m.Target, err)
		}
		s.pin.Pin(p)
		texts[i] = uintptr(unsafe.Pointer(p))
	}
	kind, target, options := texts[0], texts[1], texts[2]
	if m.Instead {
		s.list = append(s.list, step{
			call: call{unix.SYS_UMOUNT2, [5]uintptr{target, unix.MNT_DETACH}},
			does: "unmount " + m.Target,
		})
	}
	mount := step{call: call{unix.SYS_MOUNT, [5]uintptr{kind, target, kind, m.Flags, options}}, does: "mount " + m.Target}
	if m.IfKnown {
		mount.mayError = unix.EINVAL
	}
	s.list = append(s.list, mount)
	return nil
}

// finish waits until all is done, and reports what has failed.
func (s *steps) finish(o *orders) error {
	if s.done == nil {
		return nil
	}
	if _, err := s.done.Read(make([]byte, 8)); err != nil {
		return fmt.Errorf("wait for process 1: %w", err)
	}
	for i, step := range s.list[:len(s.list)-1] {
		if errno := unix.Errno(-atomic.LoadUintptr(&o.calls[i].number)); errno != 0 && errno < 4096 && errno != step.mayError {
			return fmt.Errorf("%s: %w", step.does, errno)
		}
	}
	return nil
}

func (s *steps) close() error {
	s.pin.Unpin()
	if s.done == nil {
		return nil
	}
	return s.done.Close()
}
