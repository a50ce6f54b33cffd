package layers

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestContentsOfManyNamesAreCopiedOnce has files of four names at most, where file systems
// allow 65,000.
func TestContentsOfManyNamesAreCopiedOnce(t *testing.T) {
	few := func(from, to string) error {
		var stat unix.Stat_t
		if err := unix.Stat(from, &stat); err != nil {
			return err
		}
		if stat.Nlink >= 4 {
			return &os.LinkError{Op: "link", Old: from, New: to, Err: unix.EMLINK}
		}
		return os.Link(from, to)
	}
	content := filepath.Join(t.TempDir(), "0")
	assert.NilError(t, os.WriteFile(content, []byte("four"), 0o444))
	root := newDir()
	for i := range 11 {
		root.children[strconv.Itoa(i)] = &node{mode: 0o444, content: content, size: 4}
	}
	write := func(ctx context.Context, limit int64) (*writing, string, error) {
		w := &writing{ctx: ctx, limit: limit, link: few, copies: map[string]string{}}
		dir := filepath.Join(t.TempDir(), "root")
		return w, dir, w.dir(dir, root)
	}
	w, dir, err := write(t.Context(), 8)
	assert.NilError(t, err)
	assert.Equal(t, w.copied, int64(8), "three names are the content's own, and four are of each copy")
	assert.Equal(t, w.bytes, int64(44))
	for i := range 11 {
		text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)))
		assert.NilError(t, err)
		assert.Equal(t, string(text), "four")
	}
	_, _, err = write(t.Context(), 7)
	assert.ErrorContains(t, err, "more than 7 bytes")

	ended, end := context.WithCancel(t.Context())
	end()
	_, _, err = write(ended, 8)
	assert.ErrorIs(t, err, context.Canceled)
}
