package statedir

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/takeover"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// usedStateDir is the directory of a broker that has ended.
func usedStateDir(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	d, err := Open(t.Context(), path)
	assert.NilError(t, err)
	assert.NilError(t, d.identify(""))
	_, _, err = d.FirstProviderDir("mock")
	assert.NilError(t, err)
	for _, name := range []string{"preview_key", "state.db", "state.db.copy1", "state.db.form1"} {
		assert.NilError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	assert.NilError(t, os.Mkdir(filepath.Join(path, "audit"), 0o700))
	assert.NilError(t, d.Close())
	return path
}

func TestWhatIsOpenToOthersInTheStateDirectoryIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		mode os.FileMode
		says string
	}{
		"the directory, to be written":     {".", 0o777, "may be written by others"},
		"the directory, by the group":      {".", 0o770, "may be written by others"},
		"the key of links":                 {"preview_key", 0o644, "may be read by others"},
		"the state":                        {"state.db", 0o666, "may be written by others"},
		"the state, to be read":            {"state.db", 0o640, "may be read by others"},
		"a copy of it":                     {"state.db.copy1", 0o644, "may be read by others"},
		"that of an earlier form":          {"state.db.form1", 0o604, "may be read by others"},
		"the ID":                           {"broker_id", 0o622, "may be written by others"},
		"the lock":                         {"lock", 0o666, "may be written by others"},
		"the directories of the providers": {"providers", 0o755, "may be read by others"},
		"the audit log":                    {"audit", 0o775, "may be written by others"},
	} {
		t.Run(name, func(t *testing.T) {
			path := usedStateDir(t)
			file := filepath.Join(path, test.file)
			before, err := os.Stat(file)
			assert.NilError(t, err)
			assert.NilError(t, os.Chmod(file, test.mode))
			_, err = Open(t.Context(), path)
			assert.ErrorContains(t, err, test.says)
			assert.ErrorContains(t, err, "chmod ")
			assert.ErrorContains(t, err, file)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidConfig)

			assert.NilError(t, os.Chmod(file, before.Mode()))
			d, err := Open(t.Context(), path)
			assert.NilError(t, err)
			assert.NilError(t, d.Close())
		})
	}
}

func TestWhatBelongsToAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for _, name := range []string{".", "state.db", "preview_key", "providers"} {
		path := usedStateDir(t)
		assert.NilError(t, os.Chown(filepath.Join(path, name), 12345, 12345))
		_, err := Open(t.Context(), path)
		assert.ErrorContains(t, err, "belongs to the user 12345", name)
	}
}

func TestWhatIsNoFileInTheStateDirectoryIsRefused(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a pipe":          func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a symbolic link": func(path string) error { return os.Symlink("/etc/hostname", path) },
		"a socket":        func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	} {
		for _, file := range []string{"broker_id", "preview_key", "lock", "state.db", "state.db.copy1"} {
			t.Run(name+" as "+file, func(t *testing.T) {
				path := usedStateDir(t)
				assert.NilError(t, os.Remove(filepath.Join(path, file)))
				assert.NilError(t, put(filepath.Join(path, file)))
				_, err := Open(t.Context(), path)
				assert.ErrorContains(t, err, "is not an ordinary file")
				assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidConfig)
			})
		}
	}
}

func TestWhatIsRemovedOfTheStateDirectoryIsMadeAgain(t *testing.T) {
	for name, file := range map[string]string{
		"all of it": ".", "the lock": "lock", "the ID": "broker_id", "the key": "preview_key",
		"what providers have": "providers", "what one of them has": "providers/mock/1",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			d, err := Open(t.Context(), path)
			assert.NilError(t, err)
			assert.NilError(t, d.identify(""))
			own, _, err := d.FirstProviderDir("mock")
			assert.NilError(t, err)
			gone, _, err := d.NextProviderDir("mock")
			assert.NilError(t, err)
			assert.NilError(t, d.RemoveAll([]string{gone}))
			_, err = d.Recreate([]byte("key"), []byte("secret"))
			assert.NilError(t, err)
			again, err := d.Recreate([]byte("key"), []byte("secret"))
			assert.NilError(t, err)
			assert.Assert(t, !again)

			assert.NilError(t, os.RemoveAll(filepath.Join(path, file)))
			again, err = d.Recreate([]byte("key"), []byte("secret"))
			assert.NilError(t, err)
			assert.Assert(t, again)
			id, err := readBrokerID(d.idFile())
			assert.NilError(t, err)
			assert.Equal(t, id, d.id)
			key, err := os.ReadFile(d.PreviewKeyFile())
			assert.NilError(t, err)
			assert.Equal(t, string(key), "key")
			info, err := os.Stat(own)
			assert.NilError(t, err)
			assert.Equal(t, info.Mode().Perm(), os.FileMode(0o700))
			_, err = os.Stat(gone)
			assert.ErrorIs(t, err, os.ErrNotExist)
			_, err = Open(t.Context(), path)
			assert.ErrorContains(t, err, "another broker uses the state directory")
			assert.NilError(t, d.Close())
			next, err := Open(t.Context(), path)
			assert.NilError(t, err)
			assert.NilError(t, next.Close())
		})
	}
}

// A broker that was killed while it started a plugin leaves its lock to the child for a
// moment.
func TestADirectoryThatIsInUseForAMomentIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		before, err := Open(t.Context(), path)
		assert.NilError(t, err)
		opened := make(chan error, 1)
		go func() {
			next, err := Open(t.Context(), path)
			if err == nil {
				err = next.Close()
			}
			opened <- err
		}()
		time.Sleep(takeover.Wait / 2) // of the bubble's clock
		assert.Equal(t, len(opened), 0)
		assert.NilError(t, before.Close())
		assert.NilError(t, <-opened)
	})
}
