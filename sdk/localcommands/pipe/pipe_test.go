package pipe_test

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
)

func open(t *testing.T) (*pipe.Reader, *os.File) {
	t.Helper()
	ours, theirs, err := os.Pipe()
	assert.NilError(t, err)
	r := pipe.NewReader(ours)
	t.Cleanup(func() {
		_ = r.Close()
		_ = theirs.Close()
	})
	return r, theirs
}

func TestAReaderEndsThoughSomebodyKeepsTheOtherEnd(t *testing.T) {
	r, theirs := open(t)
	text := strings.Repeat("0123456789", 5000)
	_, err := io.WriteString(theirs, text)
	assert.NilError(t, err)
	r.End()
	got, err := io.ReadAll(r)
	assert.NilError(t, err)
	assert.Equal(t, string(got), text, "what was written before counts")
}

func TestAReaderThatWaitsIsEnded(t *testing.T) {
	r, theirs := open(t)
	read := make(chan string)
	go func() {
		got, _ := io.ReadAll(r)
		read <- string(got)
	}()
	_, err := io.WriteString(theirs, "text")
	assert.NilError(t, err)
	r.End()
	assert.Equal(t, <-read, "text")
}

func TestADeadlineDoesNotUndoTheEnd(t *testing.T) {
	r, theirs := open(t)
	assert.NilError(t, r.SetReadDeadline(time.Unix(1, 0)))
	_, err := r.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = io.WriteString(theirs, "text")
	assert.NilError(t, err)
	r.End()
	assert.NilError(t, r.SetReadDeadline(time.Time{}))
	got, err := io.ReadAll(r)
	assert.NilError(t, err)
	assert.Equal(t, string(got), "text")
}

func TestWhoeverGoesOnWritingIsNotListenedTo(t *testing.T) {
	r, theirs := open(t)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		line := []byte(strings.Repeat("x", 4096))
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = theirs.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			_, _ = theirs.Write(line)
		}
	}()
	r.End()
	got, err := io.ReadAll(r)
	assert.NilError(t, err)
	assert.Assert(t, len(got) <= 1<<20)
	close(stop)
	<-stopped
}

func TestAReaderOfWhatWasClosedEnds(t *testing.T) {
	r, theirs := open(t)
	assert.NilError(t, theirs.Close())
	got, err := io.ReadAll(r)
	assert.NilError(t, err)
	assert.Equal(t, len(got), 0)
	r.End()
	assert.NilError(t, r.Close())
	r.End()
	_, err = r.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrClosed)
}
