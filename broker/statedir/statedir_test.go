package statedir

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"
)

// These tests are inside the package: what they look at is private to it.

func TestTheBrokerIDStaysTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "state")
	first, err := Open(t.Context(), path)
	assert.NilError(t, err)
	assert.NilError(t, first.identify(""))
	assert.Assert(t, !first.known)
	assert.NilError(t, first.Close())
	second, err := Open(t.Context(), path)
	assert.NilError(t, err)
	assert.NilError(t, second.identify("another"))
	assert.Assert(t, second.known)
	assert.NilError(t, second.Close())
	assert.Equal(t, first.id, second.id)
	assert.Assert(t, brokerIDForm.MatchString(first.id))

	// It is lost, and the state file says it.
	assert.NilError(t, os.Remove(filepath.Join(path, "broker_id")))
	third, err := Open(t.Context(), path)
	assert.NilError(t, err)
	assert.NilError(t, third.identify(first.id))
	assert.NilError(t, third.Close())
	assert.Equal(t, third.id, first.id)
}

func TestADamagedBrokerIDIsNotReplaced(t *testing.T) {
	dir := fs.NewDir(t, "state", fs.WithFile("broker_id", "?\n", fs.WithMode(0o600)))
	_, err := Open(t.Context(), dir.Path())
	assert.ErrorContains(t, err, "does not hold a broker ID")
	// The lock is free again.
	assert.NilError(t, os.Remove(dir.Join("broker_id")))
	d, err := Open(t.Context(), dir.Path())
	assert.NilError(t, err)
	assert.NilError(t, d.Close())
}

func TestTwoBrokersDoNotShareAStateDirectory(t *testing.T) {
	path := t.TempDir()
	first, err := Open(t.Context(), path)
	assert.NilError(t, err)
	_, err = Open(t.Context(), path)
	assert.ErrorContains(t, err, "another broker uses the state directory "+path)
	assert.NilError(t, first.Close())
	again, err := Open(t.Context(), path)
	assert.NilError(t, err)
	assert.NilError(t, again.Close())
}

func TestTheStateDirectoryIsPrivate(t *testing.T) {
	path := t.TempDir()
	assert.NilError(t, os.Chmod(path, 0o755))
	d, err := Open(t.Context(), path)
	assert.NilError(t, err)
	own, _, err := d.FirstProviderDir("self_managed")
	assert.NilError(t, err)
	assert.NilError(t, d.Close())
	for _, dir := range []string{path, own} {
		info, err := os.Stat(dir)
		assert.NilError(t, err)
		assert.Equal(t, info.Mode().Perm(), os.FileMode(0o700), dir)
	}
}

func TestADirectoryOfSomebodyElseIsNotClosedToThem(t *testing.T) {
	dir := fs.NewDir(t, "state", fs.WithMode(0o755), fs.WithFile("thesis.txt", "x"))
	_, err := Open(t.Context(), dir.Path())
	assert.ErrorContains(t, err, "choose a directory for the broker alone")
	info, err := os.Stat(dir.Path())
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o755))
}

func TestAStateDirectoryThatWasOpenedToOthersIsClosedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a state with spaces")
	first, err := Open(t.Context(), path)
	assert.NilError(t, err)
	assert.NilError(t, first.Close())
	assert.NilError(t, os.Chmod(path, 0o755))
	second, err := Open(t.Context(), path)
	assert.NilError(t, err)
	assert.NilError(t, second.Close())
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o700))
}

func TestAVolumeOfItsOwnMayBeTheStateDirectory(t *testing.T) {
	dir := fs.NewDir(t, "volume", fs.WithMode(0o755), fs.WithDir("lost+found"))
	d, err := Open(t.Context(), dir.Path())
	assert.NilError(t, err)
	assert.NilError(t, d.Close())
}

func TestAStateDirectoryThatIsAFile(t *testing.T) {
	file := fs.NewFile(t, "state")
	_, err := Open(t.Context(), file.Path())
	assert.ErrorContains(t, err, "state directory: ")
}

func TestEachProcessOfAProviderHasADirectoryOfItsOwn(t *testing.T) {
	d, err := Open(t.Context(), t.TempDir())
	assert.NilError(t, err)
	defer d.Close()
	first, abandoned, err := d.FirstProviderDir("p")
	assert.NilError(t, err)
	assert.Equal(t, filepath.Base(first), "1")
	assert.Equal(t, len(abandoned), 0)
	next, _, err := d.NextProviderDir("p")
	assert.NilError(t, err)
	assert.Equal(t, filepath.Base(next), "2")

	// The broker was killed, and starts again.
	again, abandoned, err := d.FirstProviderDir("p")
	assert.NilError(t, err)
	assert.Equal(t, again, first)
	assert.DeepEqual(t, abandoned, []string{next})

	// The upgrade came to its end: the first process is no more.
	assert.NilError(t, d.RemoveAll([]string{first}))
	again, abandoned, err = d.FirstProviderDir("p")
	assert.NilError(t, err)
	assert.Equal(t, again, next)
	assert.Equal(t, len(abandoned), 0)
	third, _, err := d.NextProviderDir("p")
	assert.NilError(t, err)
	assert.Equal(t, filepath.Base(third), "3")

	// What outlives them is in none of them, and is no directory of a process.
	keep, err := d.KeepDir("p")
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(keep, "kept"), nil, 0o600))
	assert.NilError(t, d.RemoveAll([]string{next, third}))
	_, abandoned, err = d.FirstProviderDir("p")
	assert.NilError(t, err)
	assert.Equal(t, len(abandoned), 0)
	again, err = d.KeepDir("p")
	assert.NilError(t, err)
	assert.Equal(t, again, keep)
	_, err = os.Stat(filepath.Join(keep, "kept"))
	assert.NilError(t, err)
}
