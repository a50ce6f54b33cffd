package dockerfile_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/dockerfile"
)

// opened is a context with these files, links ("-> target"), and what make makes.
func opened(t *testing.T, files map[string]string, make func(dir string)) *dockerfile.Context {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		at := filepath.Join(dir, path)
		assert.NilError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, link := strings.CutPrefix(text, "-> "); link {
			assert.NilError(t, os.Symlink(target, at))
			continue
		}
		assert.NilError(t, os.WriteFile(at, []byte(text), 0o644))
	}
	if make != nil {
		make(dir)
	}
	file := filepath.Join(t.TempDir(), "Dockerfile")
	assert.NilError(t, os.WriteFile(file, []byte("FROM scratch\n"), 0o644))
	c, _, err := dockerfile.Open(dir, file)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, c.Close()) })
	return c
}

// copied is what a copy writes, one entry a line.
func copied(t *testing.T, c *dockerfile.Context, of dockerfile.Copy, there bool) (list []string, sum string, err error) {
	t.Helper()
	var b bytes.Buffer
	sum, err = of.Archive(t.Context(), c.Files(), c.Skip, there, &b)
	if err != nil {
		return nil, "", err
	}
	archive := tar.NewReader(&b)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list, sum, nil
		}
		assert.NilError(t, err)
		text, err := io.ReadAll(archive)
		assert.NilError(t, err)
		list = append(list, fmt.Sprintf("%s %o %s%s", h.Name, h.Mode, h.Linkname, text))
	}
}

func TestFilesAreCopied(t *testing.T) {
	files := map[string]string{"a": "A", "dir/b": "B", "dir/sub/c": "C", "dir/link": "-> /etc/passwd", "x1": "1", "x2": "2", "to-dir": "-> dir", "empty/.keep": ""}
	for name, test := range map[string]struct {
		copy  dockerfile.Copy
		there bool
		want  []string
	}{
		"a file":                    {dockerfile.Copy{Sources: []string{"a"}, To: "/f"}, false, []string{"f 644 A"}},
		"a file to a directory":     {dockerfile.Copy{Sources: []string{"a"}, To: "/f", Into: true}, false, []string{"f/a 644 A"}},
		"to one that is there":      {dockerfile.Copy{Sources: []string{"a"}, To: "/f"}, true, []string{"f/a 644 A"}},
		"a directory":               {dockerfile.Copy{Sources: []string{"dir"}, To: "/f"}, false, []string{"f/b 644 B", "f/link 777 /etc/passwd", "f/sub/ 755 ", "f/sub/c 644 C"}},
		"a directory and a file":    {dockerfile.Copy{Sources: []string{"dir/sub", "a"}, To: "/f", Into: true}, false, []string{"f/c 644 C", "f/a 644 A"}},
		"a pattern":                 {dockerfile.Copy{Sources: []string{"x*"}, To: "/f", Into: true}, false, []string{"f/x1 644 1", "f/x2 644 2"}},
		"a mode":                    {dockerfile.Copy{Sources: []string{"a"}, To: "/f", Mode: new(fs.FileMode(0o750))}, false, []string{"f 750 A"}},
		"by a link within":          {dockerfile.Copy{Sources: []string{"to-dir/b"}, To: "/f"}, false, []string{"f 644 B"}},
		"a directory behind a link": {dockerfile.Copy{Sources: []string{"to-dir/sub"}, To: "/f"}, false, []string{"f/c 644 C"}},
	} {
		t.Run(name, func(t *testing.T) {
			list, _, err := copied(t, opened(t, files, nil), test.copy, test.there)
			assert.NilError(t, err)
			assert.DeepEqual(t, list, test.want)
		})
	}
}

func TestAContextLeadsNowhere(t *testing.T) {
	outside := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
	for name, test := range map[string]struct {
		files  map[string]string
		make   func(t *testing.T, dir string)
		source string
		says   string // "" for what is copied without what leads out
	}{
		"a link to a file outside":           {map[string]string{"a": "-> " + outside + "/secret"}, nil, "a", "leads out of the context"},
		"a link to a directory outside":      {map[string]string{"a": "-> " + outside}, nil, "a", "leads out of the context"},
		"through a link":                     {map[string]string{"a": "-> " + outside}, nil, "a/secret", "leads out of the context"},
		"a relative link":                    {map[string]string{"b/a": "-> ../../../../../../../../../../etc/passwd"}, nil, "b/a", "leads out of the context"},
		"links through links":                {map[string]string{"a": "-> b/c", "b/c": "-> ../d", "d": "-> ../x"}, nil, "a", "leads out of the context"},
		"a link to itself":                   {map[string]string{"a": "-> a"}, nil, "a", "cannot be"},
		"a pattern through a link":           {map[string]string{"a": "-> " + outside}, nil, "a/*", ""},
		"a link within what is copied":       {map[string]string{"d/a": "-> " + outside + "/secret", "d/b": "b"}, nil, "d", ""},
		"nothing":                            {nil, nil, "a", `there is no "a" to copy`},
		"a pipe":                             {nil, func(t *testing.T, dir string) { assert.NilError(t, unix.Mkfifo(filepath.Join(dir, "a"), 0o644)) }, "a", "neither a file nor a directory"},
		"a pipe within what is copied":       {map[string]string{"d/b": "b"}, func(t *testing.T, dir string) { assert.NilError(t, unix.Mkfifo(filepath.Join(dir, "d/a"), 0o644)) }, "d", ""},
		"what was left out by .dockerignore": {map[string]string{"a": "secret", ".dockerignore": "a"}, nil, "a", `there is no "a" to copy`},
	} {
		t.Run(name, func(t *testing.T) {
			c := opened(t, test.files, func(dir string) {
				if test.make != nil {
					test.make(t, dir)
				}
			})
			list, _, err := copied(t, c, dockerfile.Copy{Sources: []string{test.source}, To: "/f", Into: true}, false)
			if test.says != "" {
				assert.ErrorContains(t, err, test.says)
				return
			}
			if err != nil { // or nothing is found
				assert.ErrorContains(t, err, "there is no")
			}
			for _, entry := range list {
				assert.Check(t, !strings.HasSuffix(entry, " secret"), "%v", list)
			}
		})
	}
}

func TestDevicesOfAContextAreLeftOut(t *testing.T) {
	if os.Geteuid() != 0 {
		return // nobody else can make one
	}
	c := opened(t, map[string]string{"d/b": "b"}, func(dir string) {
		assert.NilError(t, unix.Mknod(filepath.Join(dir, "d/zero"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))))
		assert.NilError(t, os.Chmod(filepath.Join(dir, "d/b"), 0o755|fs.ModeSetuid))
	})
	list, _, err := copied(t, c, dockerfile.Copy{Sources: []string{"d"}, To: "/f"}, false)
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []string{"f/b 755 b"})
	_, _, err = copied(t, c, dockerfile.Copy{Sources: []string{"d/zero"}, To: "/f"}, false)
	assert.ErrorContains(t, err, "neither a file nor a directory")
}

func TestDockerignoreLeavesOut(t *testing.T) {
	files := map[string]string{
		".dockerignore": "# comment\n*.key\n**/*.tmp\ndeep\n!deep/kept\n", "a": "A", "x.key": "k", "b/x.key": "K", "b/y.tmp": "t", "deep/left": "l", "deep/kept": "k",
	}
	list, _, err := copied(t, opened(t, files, nil), dockerfile.Copy{Sources: []string{"."}, To: "/f"}, false)
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []string{"f/.dockerignore 644 " + files[".dockerignore"], "f/a 644 A", "f/b/ 755 ", "f/b/x.key 644 K", "f/deep/kept 644 k"})

	dir := t.TempDir()
	for name, text := range map[string]string{"many": strings.Repeat("a*b*c*d\nx\n", 2000), "long": strings.Repeat("x", 300<<10), "broken": "[a\n"} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte(text), 0o644))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch"), 0o644))
		c, _, err := dockerfile.Open(dir, filepath.Join(dir, "Dockerfile"))
		if err == nil {
			_, err = c.Skip("a")
			assert.Check(t, c.Close())
		}
		assert.ErrorContains(t, err, "dockerignore", name)
	}
}

func TestTheSumIsThatOfTheContents(t *testing.T) {
	files := map[string]string{"a/b": "B", "a/c": "C"}
	of := dockerfile.Copy{Sources: []string{"a"}, To: "/f"}
	_, first, err := copied(t, opened(t, files, nil), of, false)
	assert.NilError(t, err)
	_, again, err := copied(t, opened(t, files, func(dir string) {
		assert.NilError(t, os.Chtimes(filepath.Join(dir, "a/b"), time.Unix(1, 0), time.Unix(1, 0)))
	}), of, true)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(again, first), "neither times nor the place count")
	for name, change := range map[string]func(dir string){
		"a content": func(dir string) { assert.NilError(t, os.WriteFile(filepath.Join(dir, "a/b"), []byte("X"), 0o644)) },
		"a name":    func(dir string) { assert.NilError(t, os.Rename(filepath.Join(dir, "a/b"), filepath.Join(dir, "a/d"))) },
		"a mode":    func(dir string) { assert.NilError(t, os.Chmod(filepath.Join(dir, "a/b"), 0o755)) },
		"a link": func(dir string) {
			assert.NilError(t, os.Remove(filepath.Join(dir, "a/b")))
			assert.NilError(t, os.Symlink("c", filepath.Join(dir, "a/b")))
		},
	} {
		_, sum, err := copied(t, opened(t, files, change), of, false)
		assert.NilError(t, err)
		assert.Check(t, sum != first, name)
	}
}

func TestArchivesAreNotAdded(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	assert.NilError(t, w.WriteHeader(&tar.Header{Name: "a", Mode: 0o644}))
	assert.NilError(t, w.Close())
	for name, text := range map[string]string{"tar": archive.String(), "gzip": "\x1f\x8b...", "xz": "\xfd7zXZ\x00..."} {
		c := opened(t, map[string]string{"a": text}, nil)
		_, _, err := copied(t, c, dockerfile.Copy{Sources: []string{"a"}, To: "/f", Add: true}, false)
		assert.ErrorContains(t, err, "is not supported: use COPY", name)
		_, _, err = copied(t, c, dockerfile.Copy{Sources: []string{"a"}, To: "/f"}, false)
		assert.NilError(t, err, name)
	}
}
