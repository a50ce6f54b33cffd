package store_test

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// fullDisk lets no file of this process become longer than it is, until the
// returned function is called.
func fullDisk(t *testing.T, size uint64) (relieve func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	var before unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}))
	relieve = func() { assert.Check(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before)) }
	t.Cleanup(relieve)
	return relieve
}

func TestAFileThatIsMostlyEmptyIsWrittenAnew(t *testing.T) {
	s := newStore(t)
	large := record{Name: strings.Repeat("x", 1<<20)}
	for n := range 40 {
		assert.NilError(t, s.Update(t.Context(), put(strconv.Itoa(n), large)))
	}
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		for n := range 39 {
			if err := store.Delete(tx, store.Instances, strconv.Itoa(n)); err != nil {
				return err
			}
		}
		_, err := tx.Next(store.Ended)
		return err
	}))
	size := func() int64 {
		info, err := os.Stat(s.Path())
		assert.NilError(t, err)
		return info.Size()
	}
	before := size()
	assert.NilError(t, s.Close())
	assert.NilError(t, os.WriteFile(s.Path()+".compact", []byte("what a crash left"), 0o600))
	again := open(t, s.Path())
	assert.Assert(t, size() < before/2, "%d of %d", size(), before)
	got, found := get(t, again, "39")
	assert.Assert(t, found)
	assert.Equal(t, got.Name, large.Name)
	assert.NilError(t, again.Update(t.Context(), func(tx store.Tx) error {
		next, err := tx.Next(store.Ended)
		assert.Check(t, is.Equal(next, uint64(2)))
		return err
	}))
	assert.NilError(t, again.Update(t.Context(), put("after", record{})))
	left, err := filepath.Glob(s.Path() + "*.compact")
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}

func TestAFullDiskRefusesUpdatesUntilThereIsRoom(t *testing.T) {
	s := newStore(t)
	// The file is longer than the log that the tests of this package keep of what they open,
	// which the limit is one for too.
	assert.NilError(t, s.Update(t.Context(), put("before", record{Name: strings.Repeat("x", 4<<20)})))
	info, err := os.Stat(s.Path())
	assert.NilError(t, err)
	relieve := fullDisk(t, uint64(info.Size()))

	large := record{Name: strings.Repeat("x", 64<<10)}
	var refused error
	n := 0
	for ; refused == nil && n < 1000; n++ {
		refused = s.Update(t.Context(), put(strconv.Itoa(n), large))
	}
	assert.Equal(t, sdk.CodeOf(refused), sdk.CodeUnavailable)
	assert.ErrorContains(t, refused, "the broker cannot write its state: the disk is full")
	_, found := get(t, s, strconv.Itoa(n-1))
	assert.Assert(t, !found, "what was refused must not be there")

	relieve()
	assert.NilError(t, s.Update(t.Context(), put("after", large)))
	after := crashed(t, s)
	for _, key := range []string{"before", "after"} {
		_, found := get(t, after, key)
		assert.Assert(t, found, key)
	}
	_, found = get(t, after, strconv.Itoa(n-1))
	assert.Assert(t, !found)
}
