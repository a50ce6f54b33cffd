package statedir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/statedir"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
)

// A database that has a part of a state file is used by nobody but who brings the rest there.
func TestABrokerDoesNotRunOnAPartOfItsRecords(t *testing.T) {
	path, url := filepath.Join(t.TempDir(), "state"), postgres.Start(t).Database()
	d, err := statedir.Open(t.Context(), path)
	assert.NilError(t, err)
	defer d.Close()
	database, err := d.OpenDatabase(t.Context(), url, "test", hclog.NewNullLogger())
	assert.NilError(t, err)
	assert.NilError(t, database.Update(t.Context(), func(tx store.Tx) error { return tx.Put("about", "moved", []byte("false")) }))
	assert.NilError(t, database.Close())
	_, err = d.OpenDatabase(t.Context(), url, "test", hclog.NewNullLogger())
	assert.ErrorContains(t, err, "put that file back")

	file, err := store.Open(filepath.Join(path, "state.db"), store.Options{})
	assert.NilError(t, err)
	assert.NilError(t, file.Close())
	database, err = d.OpenDatabase(t.Context(), url, "test", hclog.NewNullLogger())
	assert.NilError(t, err)
	assert.NilError(t, database.Close())
	_, err = os.Lstat(filepath.Join(path, "state.db.moved"))
	assert.NilError(t, err)
}
