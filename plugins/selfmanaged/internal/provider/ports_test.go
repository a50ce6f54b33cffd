package provider

import (
	"bytes"
	"io"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// echoServer says that it listens and answers one connection after another.
const echoServer = `
import socket
s = socket.create_server(('127.0.0.1', 8000))
print('listening', flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(65536):
        c.sendall(data)
    c.close()`

// background runs code until the instance is destroyed, and returns when it has
// printed something.
func background(t *testing.T, p testProvider, id, code string) {
	t.Helper()
	started, ended := newAnnouncer(), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}, started)
	}()
	t.Cleanup(func() { <-ended })
	select {
	case <-started.written:
	case <-ended:
		t.Fatal("the code ended")
	}
}

func TestPortsOfAnInstance(t *testing.T) {
	onEachRuntime(t, func(t *testing.T, newProvider makeProvider) {
		p := newProvider(t, map[string]any{"pool_size": 1})
		id := create(t, p, templatePython)
		_, err := p.DialPort(t.Context(), id, 8000)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConnectionFailed})
		background(t, p, id, echoServer)

		conn, err := p.DialPort(t.Context(), id, 8000)
		assert.NilError(t, err)
		defer conn.Close()
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
		wrote := make(chan error, 1)
		go func() {
			_, err := conn.Write(sent)
			wrote <- err
		}()
		got := make([]byte, len(sent))
		_, err = io.ReadFull(conn, got)
		assert.NilError(t, err)
		assert.NilError(t, <-wrote)
		assert.Assert(t, bytes.Equal(sent, got))

		other := create(t, p, templatePython)
		_, err = p.DialPort(t.Context(), other, 8000)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConnectionFailed}, "another instance has ports of its own")
		_, err = p.DialPort(t.Context(), "none", 8000)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})

		assert.NilError(t, p.Pause(t.Context(), other))
		_, err = p.DialPort(t.Context(), other, 8000)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})

		assert.NilError(t, p.Destroy(t.Context(), id))
		_, err = conn.Read(got)
		assert.ErrorIs(t, err, io.EOF, "the connection ends with its instance")
	})
}
