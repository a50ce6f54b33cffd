package store_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// mostlyEmpty makes a closed state file that is worth writing anew. All that it has is
// the record "kept".
func mostlyEmpty(t *testing.T, path string) {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	assert.NilError(t, err)
	large := record{Name: strings.Repeat("x", 1<<20)}
	for n := range 20 {
		assert.NilError(t, s.Update(t.Context(), put(strconv.Itoa(n), large)))
	}
	assert.NilError(t, s.Update(t.Context(), put("kept", record{Name: "kept"})))
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		for n := range 20 {
			if err := store.Delete(tx, store.Instances, strconv.Itoa(n)); err != nil {
				return err
			}
		}
		return nil
	}))
	assert.NilError(t, s.Close())
}

func TestAFileIsWrittenAnewOrUsedAsItIs(t *testing.T) {
	for name, test := range map[string]struct {
		file  string
		spoil func(t *testing.T, second string)
		anew  bool
	}{
		"nothing is in the way": {file: "state.db", spoil: func(*testing.T, string) {}, anew: true},
		"the second one cannot be made": {
			// Its name is longer than a name may be.
			file: strings.Repeat("s", 250), spoil: func(*testing.T, string) {},
		},
		"something else is in its place": {
			file: "state.db", spoil: func(t *testing.T, second string) {
				assert.NilError(t, os.MkdirAll(filepath.Join(second, "not-empty"), 0o700))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), test.file)
			mostlyEmpty(t, path)
			test.spoil(t, path+".compact")
			before, err := os.Stat(path)
			assert.NilError(t, err)
			again := open(t, path)
			after, err := os.Stat(path)
			assert.NilError(t, err)
			assert.Equal(t, after.Size() < before.Size(), test.anew, "%d of %d", after.Size(), before.Size())
			got, found := get(t, again, "kept")
			assert.Assert(t, found)
			assert.Equal(t, got.Name, "kept")
			assert.NilError(t, again.Update(t.Context(), put("after", record{})))
		})
	}
}

func TestWhatIsPurgedIsNotInTheFileAnyMore(t *testing.T) {
	s := newStore(t)
	const secret = "a-token-in-the-clear"
	assert.NilError(t, s.Update(t.Context(), put("a", record{Name: secret})))
	assert.NilError(t, s.Update(t.Context(), put("b", record{Name: "kept"})))
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error { return store.Delete(tx, store.Instances, "a") }))
	assert.NilError(t, s.Close())
	content, err := os.ReadFile(s.Path())
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(content), secret), "a page that is free has it")

	purged := 0
	for range 2 {
		again, err := store.Open(s.Path(), store.Options{Purge: func(store.Tx) error { purged++; return nil }})
		assert.NilError(t, err)
		_, found := get(t, again, "b")
		assert.Assert(t, found)
		assert.NilError(t, again.Close())
		content, err = os.ReadFile(s.Path())
		assert.NilError(t, err)
		assert.Assert(t, !strings.Contains(string(content), secret))
	}
	assert.Equal(t, purged, 1)
}
