package runsc

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestAWidePipeHoldsAChunkAndEndsWhenItIsClosed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("pipes of ordinary users stay as they are")
	}
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	defer w.Close()
	widen(w)
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	assert.NilError(t, err)
	assert.Equal(t, size, pipeBytes)

	widen(r)
	assert.NilError(t, r.SetReadDeadline(time.Time{}), "only what does not block has deadlines")
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(r, make([]byte, 1))
		read <- err
	}()
	assert.NilError(t, r.Close())
	assert.ErrorIs(t, <-read, os.ErrClosed)
}

func TestWhatIsNoPipeStaysAsItIs(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/file")
	assert.NilError(t, err)
	widen(f)
	assert.NilError(t, f.Close())
	widen(f)
}
