package listen_test

import (
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/listen"
)

// inherit returns a socket on an address, as it comes from who started the broker, and the
// address that it has got. What listens is the returned Sockets alone.
func inherit(t *testing.T, address string) (*listen.Sockets, string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	assert.NilError(t, err)
	file, err := listener.(*net.TCPListener).File()
	assert.NilError(t, err)
	assert.NilError(t, listener.Close())
	sockets, err := listen.Inherit([]*os.File{file})
	assert.NilError(t, err)
	t.Cleanup(sockets.Close)
	return sockets, listener.Addr().String()
}

func TestASocketThatIsThereIsUsedForItsAddress(t *testing.T) {
	for name, host := range map[string]string{
		"an address": "127.0.0.1", "all addresses": "", "all of IPv4": "0.0.0.0", "all of IPv6": "[::]", "a name": "localhost",
	} {
		t.Run(name, func(t *testing.T) {
			bound := host
			if host == "localhost" {
				bound = "127.0.0.1"
			}
			sockets, address := inherit(t, bound+":0")
			_, port, err := net.SplitHostPort(address)
			assert.NilError(t, err)
			assert.DeepEqual(t, sockets.Unused(), []string{address})
			// It was there before, and so was who connected.
			early, err := net.Dial("tcp", "127.0.0.1:"+port)
			if host == "[::]" && err != nil {
				t.Skip("this machine's IPv6 sockets do not take IPv4: ", err)
			}
			assert.NilError(t, err)
			defer early.Close()
			for range 2 { // there and back
				listener, err := sockets.On(host + ":" + port)
				assert.NilError(t, err)
				assert.NilError(t, listener.Close())
			}
			assert.Equal(t, len(sockets.Unused()), 0)
			listener, err := sockets.AtStart(t.Context(), host+":"+port)
			assert.NilError(t, err)
			defer listener.Close()
			conn, err := listener.Accept()
			assert.NilError(t, err)
			_, err = io.WriteString(conn, "hello")
			assert.NilError(t, err)
			assert.NilError(t, conn.Close())
			got, err := io.ReadAll(early)
			assert.NilError(t, err)
			assert.Equal(t, string(got), "hello")
		})
	}
}

func TestAnAddressWithoutASocketIsOpened(t *testing.T) {
	sockets, address := inherit(t, "127.0.0.1:0")
	for _, s := range []*listen.Sockets{nil, sockets} {
		listener, err := s.On("127.0.0.1:0")
		assert.NilError(t, err)
		assert.Assert(t, listener.Addr().String() != address)
		assert.NilError(t, listener.Close())
	}
	assert.DeepEqual(t, sockets.Unused(), []string{address})
}

func TestAnotherAddressOfThePortIsRefusedWithBoth(t *testing.T) {
	sockets, address := inherit(t, "127.0.0.1:0")
	_, port, err := net.SplitHostPort(address)
	assert.NilError(t, err)
	_, err = sockets.On("0.0.0.0:" + port)
	assert.ErrorIs(t, err, unix.EADDRINUSE)
	assert.Check(t, cmp.ErrorContains(err, "cannot listen on 0.0.0.0:"+port))
	assert.Check(t, cmp.ErrorContains(err, "a socket on "+address))
	assert.Check(t, cmp.ErrorContains(err, "ListenStream="))
}

func TestWhatIsNoTCPSocketIsRefused(t *testing.T) {
	read, write, err := os.Pipe()
	assert.NilError(t, err)
	defer write.Close()
	_, err = listen.Inherit([]*os.File{read})
	assert.Check(t, cmp.ErrorContains(err, "socket 1 of 1"))
	_, err = read.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrClosed)

	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/sock", Net: "unix"})
	assert.NilError(t, err)
	defer listener.Close()
	file, err := listener.File()
	assert.NilError(t, err)
	_, err = listen.Inherit([]*os.File{file})
	assert.Check(t, cmp.ErrorContains(err, "listens on unix"))
	assert.Check(t, cmp.ErrorContains(err, "and not on TCP"))
}
