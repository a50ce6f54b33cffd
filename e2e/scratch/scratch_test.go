package scratch

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestADirectoryGoesWithItsTest(t *testing.T) {
	var dir string
	t.Run("a test", func(t *testing.T) {
		dir = Dir(t)
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		info, err := os.Stat(dir)
		assert.NilError(t, err)
		assert.Equal(t, info.Mode().Perm(), os.FileMode(0o700))
		assert.Check(t, Dir(t) != dir)
	})
	_, err := os.Stat(dir)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestOnlyWhatKilledTestsLeftIsSwept(t *testing.T) {
	base := t.TempDir()
	left, err := newHeld(base)
	assert.NilError(t, err)
	assert.NilError(t, left.lock.Close()) // as the kernel does it
	used, err := newHeld(base)
	assert.NilError(t, err)
	foreign := filepath.Join(base, "sbtools")
	assert.NilError(t, os.Mkdir(foreign, 0o700))
	sweep(base)
	entries, err := filepath.Glob(filepath.Join(base, "*"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 2))
	for _, kept := range []string{used.path, foreign} {
		_, err := os.Stat(kept)
		assert.Check(t, err)
	}
	assert.NilError(t, used.remove())
}

func TestAFileSystemInMemoryOfNoUseIsNotUsed(t *testing.T) {
	assert.Equal(t, baseOf(filepath.Join(t.TempDir(), "none")), os.TempDir())
	for name, options := range map[string]struct {
		flags uintptr
		size  string
	}{
		"it is small":               {size: "size=64m"},
		"it executes nothing":       {flags: unix.MS_NOEXEC, size: "size=3g"},
		"it cannot be written":      {flags: unix.MS_RDONLY, size: "size=3g"},
		"nothing speaks against it": {size: "size=3g"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", options.flags, options.size); err != nil {
				t.Skipf("a file system takes root: %v", err)
			}
			t.Cleanup(func() { assert.Check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
			want := os.TempDir()
			if name == "nothing speaks against it" {
				want = dir
			}
			assert.Equal(t, baseOf(dir), want)
		})
	}
}
