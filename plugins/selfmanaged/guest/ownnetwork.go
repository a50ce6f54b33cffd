package guest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// inherited stands before the number of a descriptor, as an address to listen on.
const inherited = "descriptor:"

// listenOn listens on an address, or on a descriptor that listens already.
func listenOn(address string) (net.Listener, error) {
	text, is := strings.CutPrefix(address, inherited)
	if !is {
		return net.Listen("tcp", address)
	}
	fd, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("the descriptor %q: %w", text, err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	return net.FileListener(file)
}

// leaveNetwork listens on the address, and begins the guest anew in a network of its own that
// leads nowhere: the socket stays in the network where it was made, and everything that the
// guest starts, itself included, can reach nothing but each other. It returns only with an
// error. Its caller is locked to its thread, for a network belongs to one.
func leaveNetwork(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fd := int(file.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("keep the listener: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("leave the network: %w", err)
	}
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("raise the loopback: %w", err)
	}
	environment := []string{ListenVariable + "=" + inherited + strconv.Itoa(fd)}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != ListenVariable && name != NetworkVariable {
			environment = append(environment, variable)
		}
	}
	return fmt.Errorf("begin anew: %w", unix.Exec("/proc/self/exe", os.Args, environment))
}

// raiseLoopback makes 127.0.0.1 usable in a new network.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	if request.Uint16()&unix.IFF_UP != 0 {
		return nil
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel whose loopback is always up
		return nil
	}
	return err
}
