package snapshotbook_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/snapshotbook"
)

func TestANoteIsReadByTheOtherProcessToo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	one, err := snapshotbook.Open(dir)
	assert.NilError(t, err)
	other, err := snapshotbook.Open(dir)
	assert.NilError(t, err)
	note := snapshotbook.Note{Labels: map[string]string{"tenant": "t"}, Template: "python", CreatedAt: time.Now().UTC(), Memory: true, Sealed: []byte{1}}
	assert.NilError(t, one.Write("sb-1", note))
	got, known, err := other.Read("sb-1")
	assert.NilError(t, err)
	assert.Check(t, known)
	assert.DeepEqual(t, got, note)
	names, err := other.Names()
	assert.NilError(t, err)
	assert.DeepEqual(t, names, []string{"sb-1"})
	info, err := os.Stat(filepath.Join(dir, "sb-1.json"))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	assert.NilError(t, other.Remove("sb-1"))
	assert.NilError(t, other.Remove("sb-1"))
	_, known, err = one.Read("sb-1")
	assert.NilError(t, err)
	assert.Check(t, !known)
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	book, err := snapshotbook.Open(t.TempDir())
	assert.NilError(t, err)
	for _, name := range []string{"", "../sb", "a/b", ".sb", "SB", "sb.json"} {
		assert.Check(t, book.Write(name, snapshotbook.Note{}) != nil, "%q", name)
	}
}

func TestOnlyTheKeyAndTheNameOpenWhatIsSealed(t *testing.T) {
	key := bytes.Repeat([]byte("k"), 32)
	sealed, err := snapshotbook.Seal(key, "sb-1", map[string]string{"A": "secret"})
	assert.NilError(t, err)
	assert.Check(t, !bytes.Contains(sealed, []byte("secret")))
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		key    []byte
		name   string
		sealed []byte
	}{
		"another key":       {bytes.Repeat([]byte("w"), 32), "sb-1", sealed},
		"another name":      {key, "sb-2", sealed},
		"a text that broke": {key, "sb-1", changed},
		"nothing":           {key, "sb-1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var content map[string]string
			assert.ErrorIs(t, snapshotbook.Unseal(c.key, c.name, c.sealed, &content), snapshotbook.ErrSealed)
		})
	}
	var content map[string]string
	assert.NilError(t, snapshotbook.Unseal(key, "sb-1", sealed, &content))
	assert.DeepEqual(t, content, map[string]string{"A": "secret"})
}
