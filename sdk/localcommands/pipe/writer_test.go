package pipe_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
)

func TestInputThatIsNotReadWaitsAsLongAsTheCaller(t *testing.T) {
	r, file, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	w := pipe.NewWriter(file, false)
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, w.Write(ctx, make([]byte, 1<<20), false), context.DeadlineExceeded)

	read := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(r)
		read <- all
	}()
	assert.NilError(t, w.Write(t.Context(), []byte("end"), true), "the next caller is not held to the deadline of the last")
	assert.Assert(t, bytes.HasSuffix(<-read, []byte("end")))
	assert.ErrorIs(t, w.Write(t.Context(), nil, false), pipe.ErrClosed)
}

func TestACallerWaitsForItsTurnNoLongerThanItsContext(t *testing.T) {
	r, file, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	w := pipe.NewWriter(file, false)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { first <- w.Write(t.Context(), make([]byte, 1<<20), false) }()
	_, err = r.Read(make([]byte, 1)) // it is the first one's turn
	assert.NilError(t, err)
	second := make(chan error)
	go func() { second <- w.Write(ctx, []byte("x"), false) }()
	cancel()
	assert.ErrorIs(t, <-second, context.Canceled)
	w.Close()
	assert.ErrorIs(t, <-first, pipe.ErrClosed)
}

func TestTheEndOfAProgramEndsTheWaitOfItsWriters(t *testing.T) {
	r, file, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	w := pipe.NewWriter(file, false)
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			assert.Check(t, is.ErrorIs(w.Write(t.Context(), make([]byte, 1<<20), false), pipe.ErrClosed))
		})
	}
	w.Close()
	writers.Wait()
}

func TestWhatNobodyReadsIsClosed(t *testing.T) {
	r, file, err := os.Pipe()
	assert.NilError(t, err)
	w := pipe.NewWriter(file, false)
	defer w.Close()
	assert.NilError(t, r.Close())
	assert.ErrorIs(t, w.Write(t.Context(), []byte("x"), false), pipe.ErrClosed)
}

func TestTheInputOfATerminalHasACharacterForItsEnd(t *testing.T) {
	r, file, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	w := pipe.NewWriter(file, true)
	assert.NilError(t, w.Write(t.Context(), []byte("a"), true))
	assert.NilError(t, w.Write(t.Context(), []byte("b"), false))
	w.Close()
	all, err := io.ReadAll(r)
	assert.NilError(t, err)
	assert.Equal(t, string(all), "a\x04b")
}
