package stdio_test

import (
	"bytes"
	"io"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
)

var token = bytes.Repeat([]byte("0123456789abcdef"), 2)

// ends are a line and the connection of the other side.
func ends(t *testing.T) (*stdio.Line, *stdio.Conn) {
	t.Helper()
	line, other, _ := endsThatTell(t)
	return line, other
}

// endsThatTell are those of ends, with a word for each write to the line that has begun.
func endsThatTell(t *testing.T) (*stdio.Line, *stdio.Conn, <-chan struct{}) {
	t.Helper()
	theirs, ourOut := io.Pipe()
	ourIn, out := io.Pipe()
	began := make(chan struct{}, 10)
	line := stdio.NewLine(theirs, tellingWriter{out, began})
	other := stdio.NewConn(ourIn, ourOut)
	t.Cleanup(func() { assert.Check(t, other.Close()); assert.Check(t, line.Close()) })
	return line, other, began
}

// tellingWriter says when a write begins.
type tellingWriter struct {
	io.WriteCloser
	began chan<- struct{}
}

func (w tellingWriter) Write(p []byte) (int, error) {
	w.began <- struct{}{}
	return w.WriteCloser.Write(p)
}

func TestACopyGetsAConnectionOfItsOwn(t *testing.T) {
	line, other, began := endsThatTell(t)
	first, err := line.Accept()
	assert.NilError(t, err)
	assert.NilError(t, line.Expect(token))

	// What belongs to the connection that nobody has any more is on its way.
	stale := make(chan error, 1)
	go func() {
		_, err := first.Write(bytes.Repeat([]byte("stale"), 1000))
		stale <- err
	}()
	<-began
	ended := make(chan error, 1)
	go func() {
		_, err := first.Read(make([]byte, 100))
		ended <- err
	}()
	assert.NilError(t, other.TakeOver(token))
	assert.NilError(t, <-stale)
	assert.ErrorIs(t, <-ended, io.EOF)
	_, err = first.Write([]byte("more"))
	assert.ErrorIs(t, err, io.ErrClosedPipe)

	second, err := line.Accept()
	assert.NilError(t, err)
	assert.NilError(t, first.Close(), "and the second one goes on")
	go func() { _, _ = second.Write([]byte("fresh")) }()
	got := make([]byte, 5)
	_, err = io.ReadFull(other, got)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(string(got), "fresh"))
	go func() { _, _ = other.Write([]byte("hello")) }()
	_, err = io.ReadFull(second, got)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(string(got), "hello"))

	assert.NilError(t, second.Close())
	_, err = line.Accept()
	assert.ErrorIs(t, err, io.EOF)
}

func TestWhatBelongsToAConnectionIsNoToken(t *testing.T) {
	for name, said := range map[string][]byte{
		"none was expected":      nil,
		"another token":          bytes.Repeat([]byte("x"), stdio.TokenBytes),
		"within what was read":   append([]byte("x"), token...),
		"the beginning of it":    token[:stdio.TokenBytes-1],
		"after it was withdrawn": token,
	} {
		t.Run(name, func(t *testing.T) {
			line, other := ends(t)
			conn, err := line.Accept()
			assert.NilError(t, err)
			if said != nil {
				assert.NilError(t, line.Expect(token))
			}
			if name == "after it was withdrawn" {
				assert.NilError(t, line.Expect(bytes.Repeat([]byte("y"), stdio.TokenBytes)))
			}
			if said == nil {
				said = token
			}
			go func() { _, _ = other.Write(said) }()
			got := make([]byte, len(said))
			_, err = io.ReadFull(conn, got)
			assert.NilError(t, err)
			assert.Check(t, is.DeepEqual(got, said))
		})
	}
	line, _ := ends(t)
	assert.ErrorContains(t, line.Expect(token[1:]), "32 bytes")
}

// A guest that says nothing but nonsense is not read for ever.
func TestTheWaitForACopyIsBounded(t *testing.T) {
	said, out := io.Pipe()
	_, in := io.Pipe()
	go func() {
		for {
			if _, err := out.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}()
	conn := stdio.NewConn(said, discard{in})
	assert.ErrorContains(t, conn.TakeOver(token), "does not answer")
	assert.NilError(t, conn.Close())
}

// discard takes whatever is written.
type discard struct{ io.Closer }

func (discard) Write(p []byte) (int, error) { return len(p), nil }
