package artifacts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/artifacts"
)

func workspace(t *testing.T) string {
	t.Helper()
	outside := fs.NewFile(t, "outside", fs.WithContent("secret"))
	other := fs.NewDir(t, "other", fs.WithFile("in.txt", "secret"))
	dir := fs.NewDir(t, "workspace",
		fs.WithFile("a.txt", "a"), fs.WithFile("b.csv", "b"),
		fs.WithDir("out", fs.WithFile("c.csv", "c"), fs.WithDir("deep", fs.WithFile("d.csv", "d"), fs.WithFile("plain", "\x89PNG\r\n\x1a\n"))),
		fs.WithSymlink("link.txt", outside.Path()), fs.WithSymlink("linked", other.Path()), fs.WithSymlink("inner", "a.txt"),
	)
	assert.NilError(t, unix.Mkfifo(dir.Join("pipe"), 0o600))
	return dir.Path()
}

func TestFilesAreFoundByPathsAndPatterns(t *testing.T) {
	root := workspace(t)
	for pattern, want := range map[string][]string{
		"a.txt":               {"a.txt"},
		root + "/a.txt":       {"a.txt"},
		"./out//c.csv":        {"out/c.csv"},
		"*.csv":               {"b.csv"},
		"*/*.csv":             {"out/c.csv"},
		"**/*.csv":            {"b.csv", "out/c.csv", "out/deep/d.csv"},
		"out/**":              {"out/c.csv", "out/deep/d.csv", "out/deep/plain"},
		"out/**/[cd].csv":     {"out/c.csv", "out/deep/d.csv"},
		"?.txt":               {"a.txt"},
		"missing.txt":         {"missing.txt"},
		"out/../a.txt":        {"a.txt"},
		"**/**/**/deep/plain": {"out/deep/plain"},
	} {
		found, err := artifacts.Find(root, pattern, 100)
		assert.Check(t, err, pattern)
		assert.Check(t, is.DeepEqual(found, want), pattern)
	}
	for pattern, why := range map[string]string{
		"link*": "matches no file", "linked/*": "matches no file", "pip?": "matches no file",
		"../x": "is outside of " + root, "/etc/passwd": "is outside of " + root, "a/../../x": "is outside of " + root, ".": "is a directory",
		"[": "is no pattern that can be understood", "a\x00": "is no path",
	} {
		_, err := artifacts.Find(root, pattern, 100)
		assert.Check(t, is.Error(err, why), pattern)
	}
	found, err := artifacts.Find(root, "**", 2)
	assert.NilError(t, err)
	assert.Equal(t, len(found), 2)
}

func TestOnlyRegularFilesWithinTheWorkspaceAreRead(t *testing.T) {
	root := workspace(t)
	f, err := artifacts.Read(root, "out/c.csv", 1)
	assert.NilError(t, err)
	assert.DeepEqual(t, f, artifacts.File{MIMEType: "text/csv", Size: 1, Data: []byte("c")})
	f, err = artifacts.Read(root, "out/deep/plain", 100)
	assert.NilError(t, err)
	assert.Equal(t, f.MIMEType, "image/png")

	for name, why := range map[string]string{
		"link.txt":               "is a symbolic link, or behind one, which is not followed",
		"inner":                  "is a symbolic link, or behind one, which is not followed",
		"linked/in.txt":          "is a symbolic link, or behind one, which is not followed",
		"missing":                "does not exist",
		"a.txt/x":                "is behind something that is no directory; symbolic links are not followed",
		"out":                    "is a directory",
		"pipe":                   "is no regular file",
		"../x":                   "is outside of " + root,
		"/etc/passwd":            "is outside of " + root,
		strings.Repeat("x", 300): "has a name that is too long",
	} {
		_, err := artifacts.Read(root, name, 100)
		assert.Check(t, is.Error(err, why), name)
	}
	f, err = artifacts.Read(root, "a.txt", 0)
	assert.Error(t, err, "is larger than 0 bytes")
	assert.Equal(t, f.Size, int64(1))
}

func TestASnapshotTellsWhatHasChanged(t *testing.T) {
	root := t.TempDir()
	assert.Assert(t, is.Len(artifacts.Take(root).Changed(root), 0), "there is no directory")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, "artifacts", name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	before := artifacts.Take(root)
	write("old", "1")
	write("deep/kept", "1")
	assert.DeepEqual(t, before.Changed(root), []string{"artifacts/deep/kept", "artifacts/old"})

	before = artifacts.Take(root)
	assert.Assert(t, is.Len(before.Changed(root), 0))
	write("old", "22")
	write("new", "1")
	assert.NilError(t, os.Symlink("/etc/passwd", filepath.Join(root, "artifacts", "passwd")))
	assert.NilError(t, os.Remove(filepath.Join(root, "artifacts", "deep", "kept")))
	assert.DeepEqual(t, before.Changed(root), []string{"artifacts/new", "artifacts/old"})

	assert.NilError(t, os.RemoveAll(filepath.Join(root, "artifacts")))
	assert.NilError(t, os.Symlink("/etc", filepath.Join(root, "artifacts")))
	assert.Assert(t, is.Len(artifacts.Take(root), 0), "a link in its place is not followed")
}

func TestTheDirectoryIsMadeWhereNothingHasItsName(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, artifacts.Dir)
	asked := 0
	asUser := func(do func() error) error {
		asked++
		return do()
	}
	assert.Assert(t, artifacts.Make(root, asUser))
	assert.Equal(t, asked, 1)
	assert.Assert(t, !artifacts.Make(root, asUser), "it is there")
	assert.NilError(t, os.Remove(path))

	assert.NilError(t, os.WriteFile(path, []byte("kept"), 0o600))
	assert.Assert(t, !artifacts.Make(root, asUser))
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "kept")
	assert.NilError(t, os.Remove(path))

	missing := filepath.Join(root, "elsewhere")
	assert.NilError(t, os.Symlink(missing, path))
	assert.Assert(t, !artifacts.Make(root, asUser))
	_, err = os.Lstat(missing)
	assert.ErrorIs(t, err, os.ErrNotExist, "a link is not followed")
	assert.Equal(t, asked, 1, "nobody becomes another user for nothing")
}

func TestAHugeTreeIsLookedAtInPart(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "artifacts", strings.Repeat("d/", 100))
	assert.NilError(t, os.MkdirAll(deep, 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(deep, "x"), nil, 0o600))
	assert.Assert(t, is.Len(artifacts.Take(root), 0))
}

func FuzzFind(f *testing.F) {
	f.Add("**/*.csv")
	f.Add("a/../[a-z]")
	root := f.TempDir()
	assert.NilError(f, os.MkdirAll(filepath.Join(root, "a/b/c"), 0o755))
	f.Fuzz(func(t *testing.T, pattern string) {
		found, err := artifacts.Find(root, pattern, 10)
		assert.Assert(t, (err == nil) == (len(found) > 0))
	})
}
