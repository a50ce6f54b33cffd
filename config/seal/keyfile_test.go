package seal_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/skip"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

func keyFile(t *testing.T, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	assert.NilError(t, os.WriteFile(path, []byte("text"), 0o600))
	assert.NilError(t, os.Chmod(path, mode))
	return path
}

func TestAKeyFileIsForItsOwnerAlone(t *testing.T) {
	for mode, ok := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o700: true, 0o640: os.Getegid() == 0 && os.Geteuid() == 0, 0o440: os.Getegid() == 0 && os.Geteuid() == 0,
		0o644: false, 0o604: false, 0o601: false, 0o620: false, 0o660: false,
	} {
		text, err := seal.ReadKeyFile(keyFile(t, mode))
		if ok {
			assert.NilError(t, err)
			assert.Equal(t, string(text), "text")
			continue
		}
		assert.Assert(t, is.ErrorContains(err, "others have access to it (mode 0"))
		assert.Assert(t, is.ErrorContains(err, "chmod 600 it"))
	}
}

func TestAKeyFileOfAnotherUserIsRefused(t *testing.T) {
	skip.If(t, os.Geteuid() != 0, "only root can give a file away")
	path := keyFile(t, 0o600)
	assert.NilError(t, os.Chown(path, 4711, -1))
	_, err := seal.ReadKeyFile(path)
	assert.ErrorContains(t, err, "it belongs to the user 4711")
}

func TestWhatIsNoKeyFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	assert.NilError(t, syscall.Mkfifo(pipe, 0o600))
	large := filepath.Join(dir, "large")
	assert.NilError(t, os.WriteFile(large, make([]byte, 65<<10), 0o600))
	for path, want := range map[string]string{
		pipe: "not a regular file", dir: "not a regular file", large: "larger than 64 KiB",
		filepath.Join(dir, "gone"): "no such file or directory",
	} {
		_, err := seal.ReadKeyFile(path)
		assert.Check(t, is.Error(err, want))
	}
}
