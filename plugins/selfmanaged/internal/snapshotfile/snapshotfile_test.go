package snapshotfile_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/snapshotfile"
)

const chunk = 256 << 10

var key = bytes.Repeat([]byte{1}, snapshotfile.KeyBytes)

func content(size int) []byte {
	text := make([]byte, size)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(text)
	return text
}

// kept writes a snapshot and returns its directory and its file.
func kept(t testing.TB, text []byte) (*snapshotfile.Dir, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshots")
	dir, err := snapshotfile.Open(path)
	assert.NilError(t, err)
	h, err := dir.Write(snapshotfile.Header{ID: "one", Labels: map[string]string{"tenant": "acme"}}, key, func(w io.Writer) error {
		for rest := text; len(rest) > 0; { // in pieces of any size
			n := min(len(rest), 100_003)
			if _, err := w.Write(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
	assert.NilError(t, err)
	info, err := os.Stat(filepath.Join(path, "one.snapshot"))
	assert.NilError(t, err)
	assert.Equal(t, h.Bytes, info.Size())
	return dir, filepath.Join(path, "one.snapshot")
}

func read(dir *snapshotfile.Dir, key []byte) ([]byte, error) {
	f, err := dir.Read("one")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := f.Content(key)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestASnapshotIsReadAsItWasWritten(t *testing.T) {
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 3*chunk + 7} {
		text := content(size)
		dir, file := kept(t, text)
		got, err := read(dir, key)
		assert.NilError(t, err)
		assert.Check(t, bytes.Equal(got, text), "%d bytes", size)
		raw, err := os.ReadFile(file)
		assert.NilError(t, err)
		if size > 16 {
			assert.Check(t, !bytes.Contains(raw, text[:16]), "it is in the file as it is")
		}
		list, err := dir.List(func(id string, err error) { t.Errorf("%s: %v", id, err) })
		assert.NilError(t, err)
		assert.Check(t, is.Len(list, 1))
		assert.Check(t, is.Equal(list[0].Labels["tenant"], "acme"))
	}
}

func TestNothingCanBeChangedInASnapshot(t *testing.T) {
	text := content(3*chunk + 7)
	_, file := kept(t, text)
	raw, err := os.ReadFile(file)
	assert.NilError(t, err)
	start := len(raw) - len(text) - 4*16 // of the first of four chunks, each with a tag
	sealed := chunk + 16
	without := func(from, to int) []byte { return append(bytes.Clone(raw[:from]), raw[to:]...) }
	flipped := func(at int) []byte {
		changed := bytes.Clone(raw)
		changed[at] ^= 1
		return changed
	}
	swapped := bytes.Clone(raw)
	copy(swapped[start:], raw[start+sealed:start+2*sealed])
	copy(swapped[start+sealed:], raw[start:start+sealed])
	cases := map[string][]byte{
		"a byte of the magic":       flipped(0),
		"a byte of the length":      flipped(8),
		"a label":                   bytes.Replace(raw, []byte("acme"), []byte("evil"), 1),
		"the first byte":            flipped(start),
		"the last byte":             flipped(len(raw) - 1),
		"the tag of a chunk":        flipped(start + chunk),
		"the last chunk is missing": raw[:start+3*sealed],
		"half of the last":          raw[:len(raw)-4],
		"the first is missing":      without(start, start+sealed),
		"one in between is missing": without(start+sealed, start+2*sealed),
		"two have changed places":   swapped,
		"one comes twice":           append(bytes.Clone(raw[:start+sealed]), raw[start:]...),
		"something follows":         append(bytes.Clone(raw), 0),
		"no content":                raw[:start],
		"half of the header":        raw[:start/2],
		"empty":                     {},
	}
	for name, changed := range cases {
		t.Run(name, func(t *testing.T) {
			dir, file := kept(t, text)
			assert.NilError(t, os.WriteFile(file, changed, 0o600))
			_, err := read(dir, key)
			assert.Assert(t, err != nil)
		})
	}
	dir, file := kept(t, text)
	_, err = read(dir, bytes.Repeat([]byte{2}, snapshotfile.KeyBytes))
	assert.ErrorIs(t, err, snapshotfile.ErrSealed)
	_, err = read(dir, key[1:])
	assert.ErrorContains(t, err, "32 bytes")
	// The file of another snapshot under this name.
	assert.NilError(t, os.Rename(file, filepath.Join(filepath.Dir(file), "two.snapshot")))
	_, err = dir.Read("two")
	assert.ErrorContains(t, err, "no snapshot of this version")
}

func TestWhatIsNotWholeIsNoSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshots")
	dir, err := snapshotfile.Open(path)
	assert.NilError(t, err)
	broken := errors.New("broken")
	_, err = dir.Write(snapshotfile.Header{ID: "one"}, key, func(io.Writer) error {
		// Another process begins meanwhile.
		_, err := snapshotfile.Open(path)
		assert.NilError(t, err)
		_, err = os.Stat(filepath.Join(path, "one.new"))
		assert.NilError(t, err, "who writes it has it")
		_, err = dir.Read("one")
		assert.ErrorIs(t, err, snapshotfile.ErrNotFound)
		return broken
	})
	assert.ErrorIs(t, err, broken)
	left, err := os.ReadDir(path)
	assert.NilError(t, err)
	assert.Check(t, is.Len(left, 0))

	assert.NilError(t, os.WriteFile(filepath.Join(path, "two.new"), []byte("half"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(path, "a file of somebody.new"), nil, 0o600))
	_, err = snapshotfile.Open(path)
	assert.NilError(t, err)
	left, err = os.ReadDir(path)
	assert.NilError(t, err)
	assert.Check(t, is.Len(left, 1), "of a process that was killed, nothing is left")
}

func TestNoIDIsAPath(t *testing.T) {
	dir, file := kept(t, nil)
	for _, id := range []string{"", "..", "../one", "one.snapshot", "ONE", "a/b"} {
		_, err := dir.Read(id)
		assert.Check(t, is.ErrorIs(err, snapshotfile.ErrNotFound))
		assert.Check(t, dir.Delete(id))
		_, err = dir.Write(snapshotfile.Header{ID: id}, key, func(io.Writer) error { return nil })
		assert.Check(t, is.ErrorContains(err, "is no ID"))
	}
	link := filepath.Join(filepath.Dir(file), "link.snapshot")
	assert.NilError(t, os.Symlink(file, link))
	_, err := dir.Read("link")
	assert.Check(t, is.ErrorIs(err, unix.ELOOP))
	assert.NilError(t, dir.Delete("one"))
	assert.NilError(t, dir.Delete("one"))
	_, err = dir.Read("one")
	assert.ErrorIs(t, err, snapshotfile.ErrNotFound)
}

func FuzzAFileOfSomebody(f *testing.F) {
	dir, file := kept(f, content(100))
	raw, err := os.ReadFile(file)
	assert.NilError(f, err)
	f.Add(raw)
	f.Add(raw[:20])
	f.Add([]byte("SBSNAP01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		assert.NilError(t, os.WriteFile(file, text, 0o600))
		got, err := read(dir, key)
		if err == nil && !bytes.Equal(got, content(100)) {
			t.Fatal("somebody has written a snapshot without the key")
		}
	})
}
