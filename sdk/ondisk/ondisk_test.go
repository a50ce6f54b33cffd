package ondisk_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

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

func TestAFileHasTheModeThatIsAskedForWhateverWasThere(t *testing.T) {
	before := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(before) })
	for name, there := range map[string]fs.PathOp{
		"nothing":               func(fs.Path) error { return nil },
		"a file of that mode":   fs.WithFile("a", "old", fs.WithMode(0o644)),
		"a file of another one": fs.WithFile("a", "longer than the new one", fs.WithMode(0o600)),
		"a protected file":      fs.WithFile("a", "old", fs.WithMode(0o444)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := fs.NewDir(t, "ondisk", there)
			assert.NilError(t, ondisk.WriteFile(dir.Join("a"), []byte("new"), 0o644))
			assert.Equal(t, content(t, dir.Join("a")), "new")
			info, err := os.Stat(dir.Join("a"))
			assert.NilError(t, err)
			assert.Equal(t, info.Mode(), os.FileMode(0o644))
			onlyFiles(t, dir.Path(), "a")
		})
	}
}

func TestALinkIsReplacedAndNotWhatItLeadsTo(t *testing.T) {
	dir := fs.NewDir(t, "ondisk", fs.WithFile("target", "old"), fs.WithSymlink("a", "target"))
	assert.NilError(t, ondisk.WriteFile(dir.Join("a"), []byte("new"), 0o600))
	assert.Equal(t, content(t, dir.Join("target")), "old")
	info, err := os.Lstat(dir.Join("a"))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode(), os.FileMode(0o600))
}

func TestNothingIsLeftOfAFileThatCouldNotBeWritten(t *testing.T) {
	dir := fs.NewDir(t, "ondisk", fs.WithDir("a", fs.WithFile("b", "")))
	assert.ErrorIs(t, ondisk.WriteFile(dir.Join("a"), []byte("new"), 0o600), os.ErrExist)
	onlyFiles(t, dir.Path(), "a")
	assert.ErrorIs(t, ondisk.WriteFile(dir.Join("gone", "a"), nil, 0o600), os.ErrNotExist)
	onlyFiles(t, dir.Path(), "a")
}

func TestADraftIsInNobodysWay(t *testing.T) {
	dir := fs.NewDir(t, "ondisk", fs.WithFile("a", "old"))
	draft, err := ondisk.Create(dir.Join("a"), 0o600)
	assert.NilError(t, err)
	_, err = draft.WriteString("new")
	assert.NilError(t, err)
	assert.Equal(t, filepath.Dir(draft.Name()), dir.Path())
	assert.Equal(t, content(t, dir.Join("a")), "old")
	assert.NilError(t, ondisk.WriteFile(dir.Join("a"), []byte("of another"), 0o600))
	assert.Equal(t, content(t, dir.Join("a")), "of another")
	assert.NilError(t, draft.Cleanup())
	onlyFiles(t, dir.Path(), "a")
}

func TestARenameReplaces(t *testing.T) {
	dir := fs.NewDir(t, "ondisk", fs.WithFile("a", "old"), fs.WithFile("b", "new"))
	assert.NilError(t, ondisk.Rename(dir.Join("b"), dir.Join("a")))
	assert.Equal(t, content(t, dir.Join("a")), "new")
	assert.ErrorIs(t, ondisk.Rename(dir.Join("b"), dir.Join("a")), os.ErrNotExist)
	assert.Equal(t, content(t, dir.Join("a")), "new")
}

func TestDraftsOfKilledProcessesAreRemovedAfterAnHour(t *testing.T) {
	for name, test := range map[string]struct {
		remove func(t *testing.T, dir *fs.Dir)
		stay   []string
	}{
		"of the file that is written": {
			func(t *testing.T, dir *fs.Dir) {
				assert.NilError(t, ondisk.WriteFile(dir.Join("a.1"), []byte("new"), 0o600))
			},
			[]string{".b77", ".hidden", ".other5", "a.1", "a.199"},
		},
		"of any file": {
			func(t *testing.T, dir *fs.Dir) { assert.NilError(t, ondisk.RemoveAbandoned(dir.Path())) },
			[]string{".b77", ".hidden", "a.1", "a.199"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old := fs.WithTimestamps(time.Now().Add(-2*time.Hour), time.Now().Add(-2*time.Hour))
			dir := fs.NewDir(t, "ondisk",
				fs.WithFile(".a.1123", "", old), fs.WithFile(".a.12", "", old), fs.WithFile(".other5", "", old), // abandoned
				fs.WithFile(".b77", "being written"), fs.WithFile(".hidden", "", old), fs.WithFile("a.1", "", old), fs.WithFile("a.199", "", old))
			test.remove(t, dir)
			onlyFiles(t, dir.Path(), test.stay...)
		})
	}
	// What a process leaves that is killed is such a draft.
	dir := fs.NewDir(t, "ondisk")
	draft, err := ondisk.Create(dir.Join("a"), 0o600)
	assert.NilError(t, err)
	assert.NilError(t, draft.Close())
	assert.NilError(t, os.Chtimes(draft.Name(), time.Time{}, time.Now().Add(-2*time.Hour)))
	assert.NilError(t, ondisk.RemoveAbandoned(dir.Path()))
	onlyFiles(t, dir.Path())
}
