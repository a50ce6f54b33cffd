package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Network is that of a container.
type Network struct {
	calls chan func() // what is to be done there
}

// Enter returns the network of a process, for as long as the test runs.
//
// One thread does all that is to be done there: threads that end would take with them what
// they have started with a parent-death signal.
func Enter(t testing.TB, pid int) *Network {
	t.Helper()
	n := &Network{calls: make(chan func())}
	entered, left := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(left)
		runtime.LockOSThread()
		network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil {
			err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
			_ = network.Close()
		}
		entered <- err
		for call := range n.calls {
			call()
		}
	}()
	t.Cleanup(func() {
		close(n.calls)
		<-left
	})
	assert.NilError(t, <-entered, "enter the network of process %d", pid)
	return n
}

// Inside calls f in the network: sockets that f makes are there.
func (n *Network) Inside(f func() error) error {
	done := make(chan error, 1)
	n.calls <- func() { done <- f() }
	return <-done
}

// DialContext connects to an address of the network's.
func (n *Network) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Inside(func() error {
		conn, err = (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
