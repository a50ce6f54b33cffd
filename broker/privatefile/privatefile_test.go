package privatefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestWhatIsWrittenIsReadAgainAndPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	assert.NilError(t, os.MkdirAll(path+".new/left", 0o700)) // of an earlier version, in nobody's way
	for _, content := range []string{"first", "second"} {
		assert.NilError(t, privatefile.Write(path, []byte(content)))
		got, err := privatefile.Read(path, 100)
		assert.NilError(t, err)
		assert.Equal(t, string(got), content)
	}
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	left, err := os.ReadDir(filepath.Dir(path))
	assert.NilError(t, err)
	assert.Equal(t, len(left), 2)
}

func TestWhatIsNotRead(t *testing.T) {
	file := func(mode os.FileMode) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	for name, test := range map[string]struct {
		make func(path string) error
		says string
	}{
		"a pipe":                    {func(path string) error { return unix.Mkfifo(path, 0o600) }, "is not an ordinary file"},
		"a directory":               {func(path string) error { return os.Mkdir(path, 0o700) }, "is not an ordinary file"},
		"a device":                  {func(path string) error { return os.Symlink("/dev/zero", path) }, "is a symbolic link"},
		"one that others may read":  {file(0o644), "may be read by others"},
		"one that others may write": {file(0o620), "may be written by others"},
		"one that is long": {func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("x", 101)), 0o600)
		}, "is longer than 100 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			assert.NilError(t, test.make(path))
			_, err := privatefile.Read(path, 100)
			assert.ErrorContains(t, err, test.says)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidConfig)
		})
	}
	_, err := privatefile.Read(filepath.Join(t.TempDir(), "nothing"), 100)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
