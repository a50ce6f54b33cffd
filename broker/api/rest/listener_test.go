package rest

import (
	"net"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// These tests are inside the package: nobody waits a minute for a slow reader.

func connect(t *testing.T, stall time.Duration) (ours net.Conn, theirs net.Conn) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer tcp.Close()
	theirs, err = net.Dial("tcp", tcp.Addr().String())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	ours, err = (&patientListener{Listener: tcp, stall: stall}).Accept()
	assert.NilError(t, err)
	t.Cleanup(func() { _ = ours.Close() })
	return ours, theirs
}

func TestAReaderThatTakesNothingIsGivenUp(t *testing.T) {
	ours, _ := connect(t, 20*time.Millisecond)
	_, err := ours.Write(make([]byte, 64<<20)) // more than sockets hold
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
