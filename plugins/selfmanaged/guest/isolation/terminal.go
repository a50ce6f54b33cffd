package isolation

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// OpenTerminal makes a terminal. The program gets theirs as Streams.Stdin, Stdout
// and Stderr, with Spec.Terminal; ours has deadlines, and reading from it fails
// when the other end is closed everywhere. The terminal belongs to the user, so
// that programs can open it again.
func OpenTerminal(size unix.Winsize) (ours, theirs *os.File, err error) {
	runtime.LockOSThread()
	err = asUser(func() error {
		ours, theirs, err = openTerminal()
		return err
	})
	if !errors.Is(err, errStuckAsUser) {
		// Else the thread must not serve anybody else; it ends with its goroutine.
		runtime.UnlockOSThread()
	}
	if err == nil {
		err = Resize(ours, size)
	}
	if err != nil {
		if ours != nil {
			_ = errors.Join(ours.Close(), theirs.Close())
		}
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	return ours, theirs, nil
}

// openTerminal leaves nothing open if it fails.
func openTerminal() (ours, theirs *os.File, err error) {
	// Not blocking: else it would have no deadlines.
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(master))
	}
	return os.NewFile(uintptr(master), "terminal"), theirs, nil
}

// Resize tells a terminal its size, and its programs with SIGWINCH.
func Resize(ours *os.File, size unix.Winsize) error {
	raw, err := ours.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	return errors.Join(err, failed)
}
