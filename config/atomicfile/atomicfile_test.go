package atomicfile_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/skip"

	"github.com/sandbox-broker/sandbox-broker/config/atomicfile"
)

var oldSum = sha256.Sum256([]byte("old"))

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	return string(text)
}

func onlyFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	assert.DeepEqual(t, got, names)
}

func TestModeAndOwnerStay(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0o644, 0o666, 0o640} {
		dir := fs.NewDir(t, "atomic", fs.WithFile("a", "old"))
		assert.NilError(t, os.Chmod(dir.Join("a"), mode))
		owner := os.Geteuid()
		if owner == 0 {
			owner = 4711
			assert.NilError(t, os.Chown(dir.Join("a"), owner, 4712))
		}
		assert.NilError(t, atomicfile.Replace(dir.Join("a"), []byte("new"), oldSum))
		info, err := os.Stat(dir.Join("a"))
		assert.NilError(t, err)
		assert.Equal(t, info.Mode(), mode)
		assert.Equal(t, int(info.Sys().(*syscall.Stat_t).Uid), owner)
		assert.Equal(t, content(t, dir.Join("a")), "new")
		onlyFiles(t, dir.Path(), "a")
	}
}

func TestALinkStaysAndItsTargetIsReplaced(t *testing.T) {
	dir := fs.NewDir(t, "atomic", fs.WithDir("real", fs.WithFile("a", "old")),
		fs.WithSymlink("b", "real/a"))
	assert.NilError(t, os.Symlink("b", dir.Join("c")))
	assert.NilError(t, atomicfile.Replace(dir.Join("c"), []byte("new"), oldSum))
	link, err := os.Readlink(dir.Join("c"))
	assert.NilError(t, err)
	assert.Equal(t, link, "b")
	assert.Equal(t, content(t, dir.Join("real/a")), "new")
	onlyFiles(t, dir.Join("real"), "a")
}

func TestAFileThatWasChangedMeanwhileStays(t *testing.T) {
	dir := fs.NewDir(t, "atomic", fs.WithFile("a", "by somebody else"))
	assert.ErrorIs(t, atomicfile.Replace(dir.Join("a"), []byte("new"), oldSum), atomicfile.ErrChanged)
	assert.Equal(t, content(t, dir.Join("a")), "by somebody else")
	onlyFiles(t, dir.Path(), "a")
	assert.ErrorIs(t, atomicfile.Replace(dir.Join("gone"), []byte("new"), oldSum), os.ErrNotExist)
	onlyFiles(t, dir.Path(), "a")
}

func TestWhatCannotBeChangedHere(t *testing.T) {
	volume := fs.NewDir(t, "atomic", fs.WithDir("..2026", fs.WithFile("a", "old")),
		fs.WithSymlink("..data", "..2026"), fs.WithSymlink("a", "..data/a"))
	link := fs.NewDir(t, "atomic", fs.WithSymlink("x", "x"))
	assert.NilError(t, os.Symlink(volume.Join("a"), link.Join("a")))
	protected := fs.NewDir(t, "atomic", fs.WithFile("a", "old", fs.WithMode(0o444)))
	for path, want := range map[string]string{
		volume.Join("a"):    "it comes from a ConfigMap or a Secret",
		link.Join("a"):      "it comes from a ConfigMap or a Secret",
		protected.Join("a"): "it is write-protected (mode 0444)",
		protected.Path():    "it is not a regular file",
		"/proc/self/status": "",
	} {
		err := atomicfile.Replace(path, []byte("new"), oldSum)
		assert.Check(t, is.ErrorContains(err, want), path)
		if want != "" {
			assert.Check(t, is.ErrorIs(err, atomicfile.ErrReadOnly))
		}
	}
	assert.Equal(t, content(t, volume.Join("a")), "old")
}

func TestADirectoryThatThisUserMayNotChange(t *testing.T) {
	skip.If(t, os.Geteuid() == 0, "root may")
	dir := fs.NewDir(t, "atomic", fs.WithFile("a", "old"))
	assert.NilError(t, os.Chmod(dir.Path(), 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir.Path(), 0o700) })
	assert.ErrorIs(t, atomicfile.Replace(dir.Join("a"), []byte("new"), oldSum), atomicfile.ErrReadOnly)
}

// Whoever reads the file sees whole contents only.
func TestReadersSeeTheOldOrTheNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	one, two := make([]byte, 1<<16), make([]byte, 1<<16)
	for i := range two {
		two[i] = 1
	}
	assert.NilError(t, os.WriteFile(path, one, 0o600))
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				got, err := os.ReadFile(path)
				assert.Check(t, err)
				assert.Check(t, is.Equal(len(got), 1<<16))
				assert.Check(t, len(got) == 0 || got[0] == got[len(got)-1])
			}
		})
	}
	for range 20 {
		assert.Check(t, atomicfile.Replace(path, two, sha256.Sum256(one)))
		one, two = two, one
	}
	close(done)
	readers.Wait()
}
