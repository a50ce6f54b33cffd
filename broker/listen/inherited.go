package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/takeover"
)

// Sockets are those that the broker was started with, as systemd does for a .socket unit.
// They listen before the broker does, and between two brokers. Which address is used for
// what is said by the configuration alone: a socket that listens there already is used in
// place of a new one. A nil Sockets has none.
type Sockets struct {
	inherited []*inherited
}

// inherited is a socket that listens as long as the broker runs, and longer. used says
// that something was served there.
type inherited struct {
	file    *os.File
	address *net.TCPAddr
	used    bool
}

// Inherit takes over sockets that listen on TCP. Close gives them up.
func Inherit(files []*os.File) (*Sockets, error) {
	s := &Sockets{}
	for i, file := range files {
		address, err := addressOf(file)
		if err != nil {
			for _, file := range files {
				_ = file.Close()
			}
			return nil, fmt.Errorf("socket %d of %d that this process was started with (%s) cannot be used: %w; "+
				"in a .socket unit of systemd, ListenStream= with an address and a port is right", i+1, len(files), file.Name(), err)
		}
		s.inherited = append(s.inherited, &inherited{file: file, address: address})
	}
	return s, nil
}

func addressOf(file *os.File) (*net.TCPAddr, error) {
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("it listens on %s %q and not on TCP", listener.Addr().Network(), listener.Addr())
	}
	return address, nil
}

// AtStart is On for a broker that may come after one that was killed.
func (s *Sockets) AtStart(ctx context.Context, address string) (net.Listener, error) {
	return takeover.Of(ctx, unix.EADDRINUSE, func() (net.Listener, error) { return s.On(address) })
}

// On listens on an address: through the socket that is there for it, or through a new one.
// What it is told is fit for people. It is for one goroutine at a time.
func (s *Sockets) On(address string) (net.Listener, error) {
	if s == nil || len(s.inherited) == 0 {
		return open(address)
	}
	wanted, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	for _, i := range s.inherited {
		if i.isAt(wanted) {
			// A copy: the socket itself stays, for a change there and back.
			listener, err := net.FileListener(i.file)
			if err != nil {
				return nil, fmt.Errorf("cannot listen on %s, through the socket that this process was started with: %w", address, err)
			}
			i.used = true
			return listener, nil
		}
	}
	listener, err := open(address)
	if errors.Is(err, unix.EADDRINUSE) {
		for _, i := range s.inherited {
			if i.address.Port == wanted.Port {
				return nil, fmt.Errorf("cannot listen on %s: this process was started with a socket on %s; "+
					"the configuration (listen = ...) and the .socket unit (ListenStream=) must name the same address: %w", address, i.address, unix.EADDRINUSE)
			}
		}
	}
	return listener, err
}

// isAt says whether that is the address of the socket. All addresses of one family are as
// good as all of both: Go makes no difference between 0.0.0.0 and [::] either.
func (i *inherited) isAt(wanted *net.TCPAddr) bool {
	if i.address.Port != wanted.Port || wanted.Port == 0 {
		return false
	}
	if wanted.IP == nil || wanted.IP.IsUnspecified() {
		return i.address.IP.IsUnspecified()
	}
	return i.address.IP.Equal(wanted.IP) && i.address.Zone == wanted.Zone
}

// Unused are the addresses of sockets at which nothing was served yet. Whoever connects
// there waits in vain.
func (s *Sockets) Unused() []string {
	var addresses []string
	if s != nil {
		for _, i := range s.inherited {
			if !i.used {
				addresses = append(addresses, i.address.String())
			}
		}
	}
	return addresses
}

// Close gives the sockets up. What somebody else holds of them, systemd say, goes on listening.
func (s *Sockets) Close() {
	if s == nil {
		return
	}
	for _, i := range s.inherited {
		_ = i.file.Close()
	}
}
