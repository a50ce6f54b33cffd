package runsc

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestfile"
)

// A service has such a mask often (UMask=0077 of systemd). It is the process's, so that no
// other test may run beside this one.
func TestTheSkeletonIsForTheUsersOfASandboxWhateverTheMask(t *testing.T) {
	program := filepath.Join(t.TempDir(), "guest")
	assert.NilError(t, os.WriteFile(program, []byte("#!/bin/true\n"), 0o755))
	guest, err := guestfile.Open(program)
	assert.NilError(t, err)
	defer guest.Close()
	dir := filepath.Join(t.TempDir(), "rootfs")

	before := unix.Umask(0o077)
	_, err = makeRootfs(dir, guest, HostRootfs)
	unix.Umask(before)
	assert.NilError(t, err)

	files := 0
	assert.NilError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		assert.NilError(t, err)
		info, err := entry.Info()
		assert.NilError(t, err)
		switch {
		case info.IsDir():
			assert.Check(t, info.Mode().Perm() == 0o755, "%s: %v", path, info.Mode())
		case info.Mode().IsRegular():
			files++
			assert.Check(t, info.Mode()&0o022 == 0 && info.Mode()&0o044 == 0o044, "%s: %v", path, info.Mode())
		}
		return nil
	}))
	assert.Check(t, files > 3)
}
