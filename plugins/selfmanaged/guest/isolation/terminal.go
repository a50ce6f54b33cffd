package isolation

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// terminalsDir is where a program finds its terminals.
const terminalsDir = "/dev/pts"

// terminalsOptions make terminals that nobody else has.
const terminalsOptions = "newinstance,ptmxmode=0666"

// mountTerminals gives this mount namespace terminals of its own: all programs run as
// the same user, so each could read and write those of another. An earlier gVisor has
// one set of them for the whole sandbox.
func mountTerminals() error {
	err := unix.Mount("devpts", terminalsDir, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, terminalsOptions)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mount %s: %w", terminalsDir, err)
	}
	return nil
}

// handOverTerminal makes a terminal among those of the program, sends the guest's end
// through a socket, which it closes, and returns the program's. The terminal belongs to
// the user, so that programs can open it again.
func handOverTerminal(socket int, size unix.Winsize) (theirs *os.File, err error) {
	defer unix.Close(socket)
	var ours *os.File
	err = asUser(func() error {
		ours, theirs, err = openTerminal()
		return err
	})
	if err == nil {
		err = resize(ours, size)
	}
	if err == nil {
		err = unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(ours.Fd())), nil, 0)
	}
	if ours != nil {
		_ = ours.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	return theirs, nil
}

// openTerminal leaves nothing open if it fails.
func openTerminal() (ours, theirs *os.File, err error) {
	master, err := unix.Open(terminalsDir+"/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile(terminalsDir+"/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(master))
	}
	return os.NewFile(uintptr(master), "terminal"), theirs, nil
}

// socketPair makes two sockets that are connected.
func socketPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket"), nil
}

// Terminal returns our end of the program's terminal, once Started has returned. It has
// deadlines, and reading from it fails when the other end is closed everywhere. The
// caller closes it.
func (p *Process) Terminal() (*os.File, error) {
	var text [1]byte
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(p.terminal.Fd()), text[:], rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("receive the terminal: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("init sent no terminal")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("init sent no terminal")
	}
	// Else it would have no deadlines.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]))
	}
	return os.NewFile(uintptr(fds[0]), "terminal"), nil
}

// resize tells a terminal its size, and its programs with SIGWINCH.
func resize(ours *os.File, size unix.Winsize) error {
	raw, err := ours.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	return errors.Join(err, failed)
}
