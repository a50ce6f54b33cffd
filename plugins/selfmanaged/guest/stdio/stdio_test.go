package stdio_test

import (
	"context"
	"io"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
)

func TestAListenerAcceptsOnceAndReportsTheEnd(t *testing.T) {
	in, remoteOut := io.Pipe()
	remoteIn, out := io.Pipe()
	listener := stdio.NewListener(stdio.NewConn(in, out))
	conn, err := listener.Accept()
	assert.NilError(t, err)
	go func() { _, _ = remoteOut.Write([]byte("ping")) }()
	buf := make([]byte, 4)
	_, err = io.ReadFull(conn, buf)
	assert.NilError(t, err)
	assert.Equal(t, string(buf), "ping")

	ended := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	assert.NilError(t, conn.Close())
	assert.NilError(t, conn.Close(), "closing twice is fine")
	assert.ErrorIs(t, <-ended, io.EOF)
	_, err = remoteIn.Read(buf)
	assert.ErrorIs(t, err, io.EOF, "both directions end")
}

func TestAClosedListenerStopsAccepting(t *testing.T) {
	in, _ := io.Pipe()
	_, out := io.Pipe()
	listener := stdio.NewListener(stdio.NewConn(in, out))
	_, err := listener.Accept()
	assert.NilError(t, err)
	assert.NilError(t, listener.Close())
	_, err = listener.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

func TestADialerHandsTheConnectionOutOnce(t *testing.T) {
	in, _ := io.Pipe()
	_, out := io.Pipe()
	dial := stdio.Dialer(stdio.NewConn(in, out))
	_, err := dial(context.Background(), "")
	assert.NilError(t, err)
	_, err = dial(context.Background(), "")
	assert.ErrorIs(t, err, io.EOF)
}
