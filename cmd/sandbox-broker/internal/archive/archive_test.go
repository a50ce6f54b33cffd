package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/archive"
)

// made is a tar stream of these entries, each of which has its name as content.
func made(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		assert.NilError(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(h.Name))
			assert.NilError(t, err)
		}
	}
	assert.NilError(t, w.Close())
	return &b
}

func file(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}
}

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
}

func dir(name string, mode int64) tar.Header {
	return tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: mode}
}

// found is what is in a directory, with the targets of links.
func found(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	assert.NilError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		assert.NilError(t, err)
		switch {
		case entry.IsDir():
			all[name] = "directory"
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			assert.NilError(t, err)
			all[name] = "-> " + target
		default:
			text, err := os.ReadFile(path)
			assert.NilError(t, err)
			all[name] = string(text)
		}
		return nil
	}))
	return all
}

func unpack(t *testing.T, stream *bytes.Buffer, into string) (skipped []string, err error) {
	t.Helper()
	_, err = archive.Unpack(stream, into, func(name, _ string) { skipped = append(skipped, name) })
	return skipped, err
}

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	from, into := t.TempDir(), filepath.Join(t.TempDir(), "new")
	assert.NilError(t, os.MkdirAll(filepath.Join(from, "a/b"), 0o755))
	assert.NilError(t, os.Mkdir(filepath.Join(from, "closed"), 0o700))
	assert.NilError(t, os.WriteFile(filepath.Join(from, "a/b/c"), []byte("text"), 0o640))
	assert.NilError(t, os.WriteFile(filepath.Join(from, "closed/run"), nil, 0o755))
	assert.NilError(t, os.Symlink("b/c", filepath.Join(from, "a/l")))
	var b bytes.Buffer
	assert.NilError(t, archive.Pack(t.Context(), &b, from, func(name string) { t.Errorf("%s is left out", name) }))
	skipped, err := unpack(t, &b, into)
	assert.NilError(t, err)
	assert.Equal(t, len(skipped), 0)
	assert.DeepEqual(t, found(t, into), found(t, from))
	for name, mode := range map[string]fs.FileMode{"a/b/c": 0o640, "closed/run": 0o755, "closed": 0o700 | fs.ModeDir} {
		info, err := os.Stat(filepath.Join(into, name))
		assert.NilError(t, err)
		assert.Equal(t, info.Mode(), mode, name)
	}
}

func TestPackingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, archive.Pack(ctx, &bytes.Buffer{}, t.TempDir(), nil), context.Canceled)
}

func TestNothingIsWrittenOutside(t *testing.T) {
	for name, c := range map[string]struct {
		stream  []tar.Header
		skipped []string
		fails   string
		left    map[string]string
	}{
		"a name that goes up":        {[]tar.Header{file("../x")}, nil, "leads out", nil},
		"a name that goes up within": {[]tar.Header{file("a/../../x")}, nil, "leads out", nil},
		"an absolute name":           {[]tar.Header{file("/tmp/x")}, nil, "leads out", nil},
		"a link that goes up":        {[]tar.Header{link("l", "../out"), file("f")}, []string{"l"}, "", map[string]string{"f": "f"}},
		"a link from a directory":    {[]tar.Header{link("a/l", "../../out")}, []string{"a/l"}, "", map[string]string{}},
		"an absolute link":           {[]tar.Header{link("l", "/etc")}, []string{"l"}, "", map[string]string{}},
		"a link within":              {[]tar.Header{file("a/f"), link("a/b/l", "../f")}, nil, "", map[string]string{"a": "directory", "a/b": "directory", "a/b/l": "-> ../f", "a/f": "a/f"}},
		"a file below a link that stays behind": {
			[]tar.Header{link("l", "../out"), file("l/f")}, []string{"l"}, "", map[string]string{"l": "directory", "l/f": "l/f"},
		},
		"a hard link":  {[]tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}}, []string{"h"}, "", map[string]string{}},
		"a device":     {[]tar.Header{{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}, []string{"d"}, "", map[string]string{}},
		"a file twice": {[]tar.Header{file("f"), file("f")}, nil, "", map[string]string{"f": "f"}},
		"a file in the place of a directory": {
			[]tar.Header{dir("a", 0o755), file("a")}, nil, "a directory is in its place", map[string]string{"a": "directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			skipped, err := unpack(t, made(t, c.stream...), filepath.Join(above, "into"))
			if c.fails == "" {
				assert.NilError(t, err)
			} else {
				assert.ErrorContains(t, err, c.fails)
			}
			assert.DeepEqual(t, skipped, c.skipped)
			if c.left != nil {
				assert.DeepEqual(t, found(t, filepath.Join(above, "into")), c.left)
			}
			entries, err := os.ReadDir(above)
			assert.NilError(t, err)
			assert.Equal(t, len(entries), 1, "nothing beside it")
		})
	}
}

// A directory here may have a link that leads out, as its owner made it. An archive does not
// go through it.
func TestALinkThatIsThereIsNotFollowedOut(t *testing.T) {
	out, into := t.TempDir(), t.TempDir()
	assert.NilError(t, os.Symlink(out, filepath.Join(into, "l")))
	_, err := unpack(t, made(t, file("l/f")), into)
	assert.Check(t, err != nil)
	assert.Equal(t, len(found(t, out)), 0)
	_, err = unpack(t, made(t, file("l")), into)
	assert.NilError(t, err, "it is replaced itself")
	assert.DeepEqual(t, found(t, into), map[string]string{"l": "l"})
}

func TestAnArchiveThatWasCut(t *testing.T) {
	whole := made(t, file("a"), file("b")).Bytes()
	for _, n := range []int{0, 100, 512, 513, 600, 1024, 1100, 2048, 2560} {
		into := t.TempDir()
		_, err := unpack(t, bytes.NewBuffer(whole[:n]), into)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d of %d bytes", n, len(whole))
		for name, content := range found(t, into) {
			assert.Equal(t, content, name, "no part of a file stays")
		}
	}
	_, err := unpack(t, bytes.NewBuffer(whole), t.TempDir())
	assert.NilError(t, err)
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("../x"), []byte("/etc"), byte(tar.TypeSymlink))
	f.Add([]byte("a/./b//c"), []byte("../.."), byte(tar.TypeReg))
	f.Fuzz(func(t *testing.T, name, target []byte, kind byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{{Name: string(name), Linkname: string(target), Typeflag: kind}, {Name: string(name) + "/x", Typeflag: tar.TypeReg}} {
			if w.WriteHeader(&h) != nil {
				return
			}
		}
		_ = w.Close()
		above := t.TempDir()
		_, _ = archive.Unpack(&b, filepath.Join(above, "into"), func(string, string) {})
		entries, err := os.ReadDir(above)
		assert.NilError(t, err)
		assert.Check(t, is.Len(entries, 1))
		for name, what := range found(t, filepath.Join(above, "into")) {
			if target, is := strings.CutPrefix(what, "-> "); is {
				leads := filepath.Join(above, "into", filepath.Dir(name), target)
				assert.Check(t, !filepath.IsAbs(target) && strings.HasPrefix(leads+"/", filepath.Join(above, "into")+"/"), "%s %s", name, what)
			}
		}
	})
}

// Whether a link leads out is judged by where it stands, which another link must not move.
func TestNothingIsNamedByWayOfALink(t *testing.T) {
	into := filepath.Join(t.TempDir(), "into")
	_, err := unpack(t, made(t, link("a", "."), link("a/a/evil", "../..")), into)
	assert.ErrorContains(t, err, "leads through a symbolic link")
	_, err = os.Lstat(filepath.Join(into, "evil"))
	assert.Check(t, os.IsNotExist(err))
}

func TestAFileStaysUntilTheNextOneIsWhole(t *testing.T) {
	into := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(into, "report"), []byte("precious"), 0o600))
	whole := made(t, tar.Header{Name: "report", Typeflag: tar.TypeReg, Mode: 0o644}).Bytes()
	_, err := unpack(t, bytes.NewBuffer(whole[:514]), into) // within its content
	assert.ErrorContains(t, err, "unexpected EOF")
	assert.DeepEqual(t, found(t, into), map[string]string{"report": "precious"})
}
