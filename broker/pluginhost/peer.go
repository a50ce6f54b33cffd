package pluginhost

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// checkPeer makes sure that our own user listens on a plugin's socket. Together
// with the private directory this protects against other users of the machine,
// without the 20 ms that AutoMTLS costs per start; neither protects against the
// plugin itself.
func checkPeer(conn net.Conn) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("not a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("ask who listens: %w", credErr)
	}
	if int(cred.Uid) != unix.Geteuid() {
		return fmt.Errorf("user %d listens on the plugin's socket, not user %d", cred.Uid, unix.Geteuid())
	}
	return nil
}
