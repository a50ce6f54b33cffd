package layers_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/layers"
)

// entry is one of an archive that a test makes.
type entry struct {
	tar.Header
	text string
}

func file(name, text string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}, text}
}

func dir(name string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func symlink(name, target string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}}
}

func hardLink(name, target string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}}
}

func (e entry) with(change func(*tar.Header)) entry {
	change(&e.Header)
	return e
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		assert.NilError(t, w.WriteHeader(&e.Header))
		_, err := w.Write([]byte(e.text))
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return b.Bytes()
}

// small are limits that a test can reach.
var small = layers.Limits{Entries: 1000, Bytes: 1 << 20, Names: 1 << 16}

func unpack(t testing.TB, raw []byte) (*layers.Layer, error) {
	t.Helper()
	return layers.Unpack(t.Context(), bytes.NewReader(raw), t.TempDir(), small)
}

// written makes a root file system of layers; it lies alone in a directory.
func written(t testing.TB, all ...[]entry) (root string, err error) {
	t.Helper()
	var unpacked []*layers.Layer
	for _, entries := range all {
		l, err := unpack(t, archive(t, entries...))
		if err != nil {
			return "", err
		}
		unpacked = append(unpacked, l)
	}
	tree, err := layers.Merge(t.Context(), unpacked, small)
	if err != nil {
		return "", err
	}
	root = filepath.Join(t.TempDir(), "root")
	_, err = tree.Write(t.Context(), root)
	return root, err
}

// contents are what is below a directory: files with their text, links with their target,
// directories with a slash.
func contents(t testing.TB, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	assert.NilError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			found[name+"/"] = ""
		case d.Type() == fs.ModeSymlink:
			found[name], err = os.Readlink(path)
		default:
			var text []byte
			text, err = os.ReadFile(path)
			found[name] = string(text)
		}
		return err
	}))
	return found
}

func TestLayersAreJoinedAsImagesMeanIt(t *testing.T) {
	lower := []entry{dir("etc"), file("etc/a", "1"), file("etc/b", "2"), dir("opt"), file("opt/x/y", "3"), dir("usr/lib"), symlink("lib", "usr/lib")}
	for name, c := range map[string]struct {
		upper []entry
		want  map[string]string
	}{
		"a whiteout removes a file": {
			[]entry{file("etc/.wh.a", "")},
			map[string]string{"etc/": "", "etc/b": "2", "opt/": "", "opt/x/": "", "opt/x/y": "3", "usr/": "", "usr/lib/": "", "lib": "usr/lib"},
		},
		"a whiteout removes a directory, and not what its own layer has there": {
			[]entry{file("opt/x/new", "n"), file(".wh.opt", ""), file(".wh.etc", "")},
			map[string]string{"opt/": "", "opt/x/": "", "opt/x/new": "n", "usr/": "", "usr/lib/": "", "lib": "usr/lib"},
		},
		"an opaque directory hides what lower layers have in it": {
			[]entry{dir("etc"), file("etc/c", "4"), file("etc/.wh..wh..opq", ""), file(".wh.opt", "")},
			map[string]string{"etc/": "", "etc/c": "4", "usr/": "", "usr/lib/": "", "lib": "usr/lib"},
		},
		"a file through a link of a lower layer": {
			[]entry{file("lib/new", "n"), file(".wh.etc", ""), file(".wh.opt", "")},
			map[string]string{"usr/": "", "usr/lib/": "", "usr/lib/new": "n", "lib": "usr/lib"},
		},
		"a file takes the place of a directory, and a directory that of a file": {
			[]entry{file("opt", "file"), dir("etc/a"), file("etc/a/in", "i")},
			map[string]string{"opt": "file", "etc/": "", "etc/a/": "", "etc/a/in": "i", "etc/b": "2", "usr/": "", "usr/lib/": "", "lib": "usr/lib"},
		},
		"the last of two entries counts": {
			[]entry{file("etc/a", "first"), file("./etc//a", "second"), file(".wh.opt", "")},
			map[string]string{"etc/": "", "etc/a": "second", "etc/b": "2", "usr/": "", "usr/lib/": "", "lib": "usr/lib"},
		},
		"a hard link to a lower layer, and an absolute one": {
			[]entry{hardLink("etc/c", "etc/a"), hardLink("etc/d", "/etc/b"), file(".wh.opt", "")},
			map[string]string{"etc/": "", "etc/a": "1", "etc/b": "2", "etc/c": "1", "etc/d": "2", "usr/": "", "usr/lib/": "", "lib": "usr/lib"},
		},
		"marks of other formats are nothing": {
			[]entry{file(".wh..wh.plnk", ""), file(".wh.etc", ""), file(".wh.opt", ""), file("nosuch/.wh.a", ""), file("nosuch/.wh..wh..opq", "")},
			map[string]string{"usr/": "", "usr/lib/": "", "lib": "usr/lib"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := written(t, lower, c.upper)
			assert.NilError(t, err)
			assert.DeepEqual(t, contents(t, root), c.want)
		})
	}
}

func TestHostileLayersAreRefused(t *testing.T) {
	many := make([]entry, 1001)
	for i := range many {
		many[i] = dir("d")
	}
	truncated := archive(t, file("a", strings.Repeat("x", 4096)))[:1024]
	deep := strings.Repeat("d/", 200)
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"a path that leaves":                    {archive(t, file("../../etc/cron.d/x", "x")), "leaves the root"},
		"a path that leaves in the middle":      {archive(t, file("a/../../x", "x")), "leaves the root"},
		"a hard link that leaves":               {archive(t, file("a", "x"), hardLink("b", "../../../etc/shadow")), "leaves the root"},
		"a hard link to a path of this machine": {archive(t, hardLink("b", "/etc/shadow")), "is no file of the image"},
		"a hard link through a symbolic one":    {archive(t, symlink("up", "/etc"), hardLink("b", "up/shadow")), "is no file of the image"},
		"a hard link to a directory":            {archive(t, dir("a"), hardLink("b", "a")), "is no file of the image"},
		"a whiteout of the directory above":     {archive(t, file("a/.wh...", "")), "removes nothing"},
		"a whiteout of nothing":                 {archive(t, file("a/.wh.", "")), "removes nothing"},
		"a file as a directory":                 {archive(t, file("a", "x"), file("a/b", "y")), "where a directory should be"},
		"links in a circle":                     {archive(t, symlink("a", "b"), symlink("b", "a"), file("a/x", "x")), "too many symbolic links"},
		"a link into itself, longer each time":  {archive(t, symlink("a", "a/a/a/a/a/a/a/a"), file("a/x", "x")), "too many symbolic links"},
		"too many entries":                      {archive(t, many...), "more than 1000 entries"},
		"too large a file":                      {archive(t, file("a", strings.Repeat("x", 1<<20+1))), "more than 1048576 bytes"},
		"many files that are too large together": {archive(t, file("a", strings.Repeat("x", 1<<19)), file("b", strings.Repeat("x", 1<<19)),
			file("c", "x")), "more than 1048576 bytes"},
		"too deep a path":           {archive(t, dir(deep)), "directories deep"},
		"too long a name":           {archive(t, file(strings.Repeat("n", 300), "x")), "more than 255 bytes"},
		"too long a path":           {archive(t, file(strings.Repeat("n/", 2100)+"x", "x")), "more than 4095 bytes"},
		"an end in a file":          {truncated, "ends in the middle"},
		"no archive":                {[]byte(strings.Repeat("no archive at all", 100)), "no proper tar archive"},
		"a root that is a link":     {archive(t, symlink(".", "/etc")), "the root of the layer is no directory"},
		"a link that leads nowhere": {archive(t, symlink("a", strings.Repeat("x/", 2100))), "leads nowhere"},
		"a hole without an end":     {sparse(), "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := unpack(t, c.raw)
			if err == nil {
				_, err = layers.Merge(t.Context(), []*layers.Layer{l}, small)
			}
			assert.ErrorContains(t, err, c.want)
			_, ok := errors.AsType[*layers.InvalidError](err)
			assert.Assert(t, ok, "it is the archive's fault: %T", err)
		})
	}
}

// sparse is an archive with a file of a gigabyte that is a hole, in GNU's old format.
func sparse() []byte {
	block := make([]byte, 512)
	copy(block, "hole")
	copy(block[100:], "0000644\x00")
	copy(block[108:], "0000000\x00")
	copy(block[116:], "0000000\x00")
	copy(block[124:], "00000000000\x00") // stored
	copy(block[136:], "00000000000\x00")
	block[156] = 'S'
	copy(block[257:], "ustar  \x00")
	copy(block[386:], "10000000000\x00") // the hole's end: one empty piece there
	copy(block[398:], "00000000000\x00")
	copy(block[483:], "10000000000\x00") // whole
	copy(block[148:], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	digits := []byte("000000\x00 ")
	for i := 5; i >= 0; i-- {
		digits[i] = byte('0' + sum%8)
		sum /= 8
	}
	copy(block[148:], digits)
	return append(block, make([]byte, 1024)...)
}

func TestNothingIsWrittenOutsideOfTheRoot(t *testing.T) {
	outside := t.TempDir()
	root, err := written(t, []entry{
		symlink("out", outside), file("out/planted", "x"), symlink("up", "../../../../../../../../"+outside), file("up/planted", "x"),
		symlink("here", "."), file("here/here/here/f", "f"), symlink("dev", outside), dir("dev"), file("dev/null", "no device"),
	})
	assert.NilError(t, err)
	planted, err := os.ReadDir(outside)
	assert.NilError(t, err)
	assert.Equal(t, len(planted), 0)
	found := contents(t, root)
	assert.Equal(t, found[strings.TrimPrefix(outside, "/")+"/planted"], "x", "links lead where they would in a sandbox")
	assert.Equal(t, found["f"], "f")
	assert.Equal(t, found["dev/null"], "no device")
}

func TestModesAreThoseOfASandbox(t *testing.T) {
	mode := func(m int64, uid int) func(*tar.Header) {
		return func(h *tar.Header) { h.Mode, h.Uid = m, uid }
	}
	when := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	root, err := written(t, []entry{
		file("suid", "x").with(mode(0o6755, 0)), file("open", "x").with(mode(0o777, 0)), file("secret", "x").with(mode(0o600, 0)),
		file("theirs", "x").with(mode(0o640, 1000)), file("none", "x").with(mode(0, 0)), dir("closed").with(mode(0, 0)), file("closed/in", "x"),
		dir("sticky").with(mode(0o1777, 0)), file("old", "x").with(func(h *tar.Header) { h.ModTime = when }),
		{Header: tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}},
		{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}},
		{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}},
	})
	assert.NilError(t, err)
	for name, want := range map[string]fs.FileMode{
		"suid": 0o555, "open": 0o555, "secret": 0o400, "theirs": 0o444, "none": 0o400, "closed": fs.ModeDir | 0o700, "sticky": fs.ModeDir | 0o755, "old": 0o444,
	} {
		info, err := os.Lstat(filepath.Join(root, name))
		assert.NilError(t, err)
		assert.Check(t, is.Equal(info.Mode(), want), name)
	}
	for _, name := range []string{"null", "sda", "pipe"} {
		_, err := os.Lstat(filepath.Join(root, name))
		assert.Check(t, errors.Is(err, fs.ErrNotExist), name)
	}
	info, err := os.Lstat(filepath.Join(root, "old"))
	assert.NilError(t, err)
	assert.Check(t, info.ModTime().Equal(when), "%s", info.ModTime())
}

func TestWhatIsMountedOntoIsNoLink(t *testing.T) {
	l, err := unpack(t, archive(t, symlink("proc", "/etc"), symlink("opt", "usr"), file("tmp", "x"), dir("etc"), symlink("etc/passwd", "/root/x")))
	assert.NilError(t, err)
	tree, err := layers.Merge(t.Context(), []*layers.Layer{l}, small)
	assert.NilError(t, err)
	for _, path := range []string{"proc", "opt/sandbox", "tmp"} {
		tree.PutDirectory(path)
	}
	tree.PutFile("etc/passwd", "root:x:0:0::/:/bin/sh\n")
	root := filepath.Join(t.TempDir(), "root")
	_, err = tree.Write(t.Context(), root)
	assert.NilError(t, err)
	assert.DeepEqual(t, contents(t, root), map[string]string{
		"proc/": "", "opt/": "", "opt/sandbox/": "", "tmp/": "", "etc/": "", "etc/passwd": "root:x:0:0::/:/bin/sh\n",
	})
}

func TestProgramsAreFoundThroughLinksOfTheImage(t *testing.T) {
	program := func(name string) entry { return file(name, "#!").with(func(h *tar.Header) { h.Mode = 0o755 }) }
	l, err := unpack(t, archive(t, program("usr/bin/python3.12"), symlink("usr/bin/python3", "python3.12"), symlink("usr/local", "/usr"),
		symlink("etc/alternatives/py", "/usr/bin/python3"), file("usr/bin/text", "x"), symlink("usr/bin/loop", "loop"), symlink("usr/bin/up", "../../../../usr/bin/python3.12"), dir("usr/bin/dir")))
	assert.NilError(t, err)
	tree, err := layers.Merge(t.Context(), []*layers.Layer{l}, small)
	assert.NilError(t, err)
	for path, want := range map[string]bool{
		"/usr/bin/python3.12": true, "/usr/bin/python3": true, "/usr/local/bin/python3": true, "/etc/alternatives/py": true, "/usr/bin/up": true,
		"/usr/bin/text": false, "/usr/bin/loop": false, "/usr/bin/dir": false, "/usr/bin/none": false, "/none/none": false,
	} {
		assert.Check(t, is.Equal(tree.Program(path), want), path)
	}
}

// pieces are what scripted makes paths and targets of.
var pieces = []string{"a", "b", "a/b", "a/b/c", ".", "..", "/", "/a", "../a", "a/../b", "a/.wh.b", ".wh.a", ".wh..wh..opq", "a/.wh..wh..opq", ".wh..", "", "a//b/", "/etc/passwd", "\xff", "a/a/a/a"}

// scripted is an archive of which each three bytes are an entry: sums of headers would keep
// a fuzzer from most of what there is.
func scripted(t testing.TB, script []byte) []byte {
	var entries []entry
	for len(script) >= 3 && len(entries) < 100 {
		name, target := pieces[int(script[1])%len(pieces)], pieces[int(script[2])%len(pieces)]
		switch script[0] % 5 {
		case 0:
			entries = append(entries, file(name, target))
		case 1:
			entries = append(entries, dir(name))
		case 2:
			entries = append(entries, symlink(name, target))
		case 3:
			entries = append(entries, hardLink(name, target))
		case 4:
			entries = append(entries, file(name+"/"+target, "x"))
		}
		script = script[3:]
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			continue // the writer knows no such entry
		}
		_, err := w.Write([]byte(e.text))
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return b.Bytes()
}

// FuzzLayers has any bytes as a layer make nothing outside of the root, and no file that is
// not one.
func FuzzLayers(f *testing.F) {
	f.Add(archive(f, dir("a"), file("a/b", "x"), symlink("c", "../../.."), hardLink("d", "a/b"), file("c/e", "y"), file("a/.wh.b", ""), file("a/.wh..wh..opq", "")))
	f.Add(archive(f, symlink("a", "/"), file("a/../x", "y")))
	f.Add(sparse())
	f.Add([]byte{2, 0, 7, 4, 0, 1, 0, 10, 0, 3, 1, 2})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < 512 {
			raw = scripted(t, raw)
		}
		parent := t.TempDir()
		scratch := filepath.Join(parent, "layer")
		assert.NilError(t, os.Mkdir(scratch, 0o700))
		limits := layers.Limits{Entries: 100, Bytes: 1 << 20, Names: 1 << 16}
		l, err := layers.Unpack(t.Context(), bytes.NewReader(raw), scratch, limits)
		if err == nil {
			var again *layers.Layer
			again, err = layers.Open(scratch, l.DiffID)
			assert.NilError(t, err)
			assert.Equal(t, len(again.Entries), len(l.Entries))
			var tree *layers.Tree
			if tree, err = layers.Merge(t.Context(), []*layers.Layer{l, l}, limits); err == nil {
				_, err = tree.Write(t.Context(), filepath.Join(parent, "root"))
			}
		}
		if _, bad := errors.AsType[*layers.InvalidError](err); err != nil && !bad {
			t.Fatalf("it is the archive's fault: %v", err)
		}
		left, err := os.ReadDir(parent)
		assert.NilError(t, err)
		for _, e := range left {
			assert.Assert(t, e.Name() == "layer" || e.Name() == "root", e.Name())
		}
		_ = filepath.WalkDir(filepath.Join(parent, "root"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Type() != fs.ModeSymlink && !d.Type().IsRegular() {
				t.Fatalf("%s is %s", path, d.Type())
			}
			return nil
		})
	})
}

// noTime is more than any of the archives below may take: what is quadratic in them takes
// minutes.
const noTime = 20 * time.Second

func TestHostileLayersTakeNoTime(t *testing.T) {
	var removals, ways []entry
	for i := range 50_000 {
		removals = append(removals, symlink(fmt.Sprintf("d/%d", i), "x"), file("d/.wh..wh..opq", ""))
	}
	// Forty links, each of which leads to the next on a way of four kilobytes.
	for i := range 40 {
		ways = append(ways, symlink(fmt.Sprintf("l%d", i), strings.Repeat("./", 2040)+fmt.Sprintf("l%d", i+1)))
	}
	ways = append(ways, dir("l40"))
	for i := range 30_000 {
		ways = append(ways, file(fmt.Sprintf("l0/.wh.%d", i), ""))
	}
	limits := layers.Limits{Entries: 200_000, Bytes: 1 << 30, Names: 16 << 20}
	for name, entries := range map[string][]entry{"removals of what the layer itself has": removals, "long ways through links": ways} {
		t.Run(name, func(t *testing.T) {
			l, err := layers.Unpack(t.Context(), bytes.NewReader(archive(t, entries...)), t.TempDir(), limits)
			assert.NilError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), noTime)
			defer cancel()
			_, err = layers.Merge(ctx, []*layers.Layer{l, l}, layers.Limits{Entries: 400_000, Names: 32 << 20})
			assert.NilError(t, err)
			ended, end := context.WithCancel(t.Context())
			end()
			_, err = layers.Merge(ended, []*layers.Layer{l}, limits)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
}

func TestLimitsAreThoseOfAllLayersTogether(t *testing.T) {
	long := strings.Repeat("n", 200)
	var names, whiteouts []entry
	for i := range 100 {
		names = append(names, symlink(fmt.Sprintf("%d", i), strings.Repeat("t", 300)))
	}
	for i := range 600 {
		whiteouts = append(whiteouts, file(fmt.Sprintf(".wh.%d", i), ""))
	}
	for name, c := range map[string]struct {
		entries []entry
		want    string
	}{
		"names":     {names, "the names in the image have more than 65536 bytes"},
		"whiteouts": {whiteouts, "more than 1000 entries"},
	} {
		l, err := unpack(t, archive(t, c.entries...))
		assert.NilError(t, err, name)
		_, err = layers.Merge(t.Context(), []*layers.Layer{l}, small)
		assert.NilError(t, err, name)
		_, err = layers.Merge(t.Context(), []*layers.Layer{l, l, l}, small)
		assert.Check(t, is.ErrorContains(err, c.want), name)
	}
	var many []entry
	for i := range 400 {
		many = append(many, file(fmt.Sprintf("%s%d", long, i), ""))
	}
	_, err := unpack(t, archive(t, many...))
	assert.ErrorContains(t, err, "the names in the layer have more than 65536 bytes")

	l, err := unpack(t, archive(t, file("a", "four"), symlink("b", "a"), file(".wh.c", "")))
	assert.NilError(t, err)
	used := l.Used()
	assert.Equal(t, used.Entries, 3)
	assert.Equal(t, used.Names, int64(len("a")+len("b")+len("a")+len("c")))
	assert.Assert(t, used.Bytes >= 5*512, "the archive counts: %d", used.Bytes)
	left := small.Without(used)
	assert.Equal(t, left.Entries, 997)
}
