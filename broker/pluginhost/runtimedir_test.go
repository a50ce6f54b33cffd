package pluginhost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestTheRuntimeDirectoryIsOursAloneAndGoesWithUs(t *testing.T) {
	base := shortDir(t)
	dir, err := newRuntimeDir(base)
	assert.NilError(t, err)
	info, err := os.Stat(dir.path)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o700))
	assert.NilError(t, dir.close())
	left, err := os.ReadDir(base)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}

func TestWhatDeadBrokersLeftIsSweptAndLivingOnesAreSpared(t *testing.T) {
	base := shortDir(t)
	dead := filepath.Join(base, runtimePrefix+"123")
	assert.NilError(t, os.MkdirAll(filepath.Join(dead, "plugin-dir1"), 0o700))
	other := filepath.Join(base, "something-else")
	assert.NilError(t, os.Mkdir(other, 0o700))
	assert.NilError(t, os.Symlink(other, filepath.Join(base, runtimePrefix+"link")))

	living, err := newRuntimeDir(base)
	assert.NilError(t, err)
	second, err := newRuntimeDir(base)
	assert.NilError(t, err)

	_, err = os.Stat(dead)
	assert.ErrorIs(t, err, os.ErrNotExist)
	for _, path := range []string{other, living.path, second.path} {
		_, err = os.Stat(path)
		assert.NilError(t, err)
	}
	assert.NilError(t, living.close())
	assert.NilError(t, second.close())
}

func TestARuntimeDirectoryTooLongForSocketsIsRefused(t *testing.T) {
	base := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	assert.NilError(t, os.Mkdir(base, 0o700))
	_, err := newRuntimeDir(base)
	assert.Assert(t, is.ErrorContains(err, "is too long: socket paths below it would exceed 107 bytes"))
	left, err := os.ReadDir(base)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}

// shortDir is t.TempDir with a name that leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rt") //nolint:usetesting // t.TempDir is too long for a socket
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	return dir
}
