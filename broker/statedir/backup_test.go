package statedir

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// filledState is a state directory in which a broker has kept three records, and the
// store that it has open.
func filledState(t *testing.T) (dir string, d *Dir, s *store.Store) {
	t.Helper()
	// A path that is longer than that of a socket may be.
	dir = filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	d, err := Open(t.Context(), dir)
	assert.NilError(t, err)
	s, err = store.Open(d.file(), store.Options{})
	assert.NilError(t, err)
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		for _, key := range []string{"a", "b", "c"} {
			if err := store.Put(tx, store.Usage, key, map[string]int{"used": 1}); err != nil {
				return err
			}
		}
		return nil
	}))
	return dir, d, s
}

func TestABackupIsMadeWhileABrokerRuns(t *testing.T) {
	dir, d, s := filledState(t)
	b, err := ServeBackups(dir, s.Snapshot, hclog.NewNullLogger())
	assert.NilError(t, err)
	for range 2 {
		to := filepath.Join(t.TempDir(), "backup")
		report, err := Backup(t.Context(), dir, to)
		assert.NilError(t, err)
		assert.Equal(t, report.Records[store.Usage], 3)
		info, err := os.Stat(to)
		assert.NilError(t, err)
		assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
		_, err = Backup(t.Context(), dir, to)
		assert.ErrorIs(t, err, os.ErrExist)

		files, err := Check(t.Context(), dir)
		assert.NilError(t, err)
		assert.Equal(t, files[0].Problem, "")
		assert.Equal(t, files[0].Records[store.Usage], 3)

		// The socket is removed, and comes back.
		assert.NilError(t, os.Remove(filepath.Join(dir, backupName)))
		_, err = Backup(t.Context(), dir, to+"2")
		assert.ErrorContains(t, err, "ask the broker")
		assert.NilError(t, b.Recreate())
	}
	_, err = Restore(dir, "", false)
	assert.ErrorContains(t, err, "stop it first")
	assert.NilError(t, b.Close())
	assert.NilError(t, s.Close())
	assert.NilError(t, d.Close())

	to := filepath.Join(t.TempDir(), "backup")
	_, err = Backup(t.Context(), dir, to)
	assert.NilError(t, err, "of one that does not run")
	done, err := Restore(dir, to, false)
	assert.NilError(t, err)
	assert.Equal(t, done.Added[store.Usage], 3)
}

func TestABackupThatBreaksOffLeavesNoFile(t *testing.T) {
	dir, d, s := filledState(t)
	defer func() { assert.Check(t, errors.Join(s.Close(), d.Close())) }()
	b, err := ServeBackups(dir, func(to io.Writer) error {
		_, err := to.Write(make([]byte, 5000))
		return errors.Join(err, context.Canceled)
	}, hclog.NewNullLogger())
	assert.NilError(t, err)
	defer func() { assert.Check(t, b.Close()) }()
	out := t.TempDir()
	_, err = Backup(t.Context(), dir, filepath.Join(out, "backup"))
	assert.ErrorIs(t, err, store.ErrDamaged)
	left, err := os.ReadDir(out)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}
