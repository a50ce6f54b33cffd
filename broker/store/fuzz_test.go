package store_test

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// FuzzRecord reads records that no broker wrote: a file that was edited, or of
// another version.
func FuzzRecord(f *testing.F) {
	s, err := store.Open(filepath.Join(f.TempDir(), "state.db"), store.Options{})
	assert.NilError(f, err)
	f.Cleanup(func() { assert.Check(f, s.Close()) })
	for _, seed := range []string{`{"name":"a","count":1}`, `{`, `null`, `{"count":"1"}`, `[]`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
			return tx.Put(store.Instances, "k", value)
		}))
		var r record
		alone := s.View(func(tx store.Tx) error {
			_, err := store.Get(tx, store.Instances, "k", &r)
			return err
		})
		among := s.View(func(tx store.Tx) error {
			return store.Each(tx, store.Instances, func(_ string, each record, err error) error {
				assert.Equal(t, each.Name, r.Name)
				return err
			})
		})
		assert.Equal(t, alone == nil, among == nil)
	})
}
