package localfiles_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
)

func ExampleNew() {
	directory, _ := os.MkdirTemp("", "instance")
	defer os.RemoveAll(directory)
	_ = os.MkdirAll(filepath.Join(directory, "workspace"), 0o700)

	files := localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return directory, nil }})
	written, err := files.WriteFile(context.Background(), sdk.WriteFileRequest{Path: "a.txt"}, strings.NewReader("text"))
	fmt.Println(written.Path, written.Size, err)
	_, err = files.StatFile(context.Background(), "", "/etc/passwd")
	fmt.Println(err)
	// Output:
	// /workspace/a.txt 4 <nil>
	// SB010: path: must be below /workspace or /tmp
}

// sandbox is one instance, beside a secret of the host.
type sandbox struct {
	*localfiles.Files
	dir string
}

func newSandbox(t *testing.T) sandbox {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"workspace", "tmp"} {
		assert.NilError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("of the host"), 0o600))
	return sandbox{localfiles.New(localfiles.Options{Directory: func(id string) (string, error) {
		if id != "" {
			return "", sdk.Errorf(sdk.CodeNotFound, "no such instance")
		}
		return dir, nil
	}}), dir}
}

func (s sandbox) write(t *testing.T, name, text string) {
	t.Helper()
	_, err := s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: name, MakeParents: true}, strings.NewReader(text))
	assert.NilError(t, err)
}

func (s sandbox) link(t *testing.T, target, name string) {
	t.Helper()
	assert.NilError(t, os.Symlink(target, filepath.Join(s.dir, "workspace", name)))
}

func (s sandbox) read(ctx context.Context, name string) (string, error) {
	_, content, err := s.ReadFile(ctx, sdk.ReadFileRequest{Path: name})
	if err != nil {
		return "", err
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	return string(text), err
}

func (s sandbox) list(t *testing.T, req sdk.ListFilesRequest) (names []string, truncated bool) {
	t.Helper()
	truncated, err := s.ListFiles(t.Context(), req, func(files []sdk.FileInfo) error {
		for _, f := range files {
			names = append(names, f.Path)
		}
		return nil
	})
	assert.NilError(t, err)
	return names, truncated
}

// archived is a tar archive of these entries.
func archived(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range headers {
		assert.NilError(t, w.WriteHeader(&h))
		_, err := w.Write(make([]byte, h.Size))
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return &archive
}

func codeOf(err error) sdk.Code {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestNoPathLeadsOut(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "in/file", "text")
	for target, name := range map[string]string{"../secret": "up", "/etc": "etc", "../../../..": "root", "loop": "loop", "..": "parent", "../tmp": "place"} {
		s.link(t, target, name)
	}
	for name, want := range map[string]sdk.Code{
		"up": sdk.CodeInvalidRequest, "etc/passwd": sdk.CodeInvalidRequest, "root/etc/passwd": sdk.CodeInvalidRequest,
		"loop": sdk.CodeInvalidRequest, "parent/secret": sdk.CodeInvalidRequest, "place/x": sdk.CodeInvalidRequest,
		"/etc/passwd": sdk.CodeInvalidRequest, "../secret": sdk.CodeInvalidRequest, "in/../../secret": sdk.CodeInvalidRequest, "/": sdk.CodeInvalidRequest,
		"": sdk.CodeInvalidRequest, "a\x00b": sdk.CodeInvalidRequest, "\xff": sdk.CodeInvalidRequest,
		strings.Repeat("a", 256): sdk.CodeInvalidRequest, strings.Repeat("a/", 2100): sdk.CodeInvalidRequest,
		"in/file/below": sdk.CodeConflict, "nothing": sdk.CodeNotFound, "nothing/below": sdk.CodeNotFound, "in": sdk.CodeConflict,
	} {
		_, err := s.read(t.Context(), name)
		assert.Check(t, is.Equal(codeOf(err), want), "%q: %v", name, err)
		assert.Check(t, !strings.Contains(fmt.Sprint(err), s.dir), "%v", err)
		if want == sdk.CodeInvalidRequest && name != "up" && name != "loop" && name != "" {
			_, err = s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: name, MakeParents: true}, strings.NewReader("x"))
			assert.Check(t, is.Equal(codeOf(err), want), "%q: %v", name, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "secret"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "of the host")
	_, err = s.StatFile(t.Context(), "unknown", "a")
	assert.Equal(t, codeOf(err), sdk.CodeNotFound)
}

func TestLinksThatStayAreFollowed(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "in/file", "text")
	s.link(t, "in", "relative")
	s.link(t, "/workspace/in", "absolute")
	s.link(t, "absolute/../in/./file", "far")
	for _, name := range []string{"relative/file", "absolute/file", "far", "/workspace/absolute/../absolute/file"} {
		text, err := s.read(t.Context(), name)
		assert.NilError(t, err, name)
		assert.Equal(t, text, "text")
	}
	info, err := s.StatFile(t.Context(), "", "far")
	assert.NilError(t, err)
	assert.Equal(t, info.Type, sdk.FileSymlink)
	assert.Equal(t, info.Target, "absolute/../in/./file")
	// What is written, moved or removed is the link itself.
	_, err = s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: "far"}, strings.NewReader("x"))
	assert.Equal(t, codeOf(err), sdk.CodeConflict)
	assert.NilError(t, s.RemoveFile(t.Context(), "", "far", false))
	text, err := s.read(t.Context(), "in/file")
	assert.NilError(t, err)
	assert.Equal(t, text, "text")
}

// Code changes a directory into a link and back while files are written through it.
func TestARaceOfLinksLeadsNowhere(t *testing.T) {
	s := newSandbox(t)
	outside := t.TempDir()
	assert.NilError(t, os.Chmod(outside, 0o700))
	way := filepath.Join(s.dir, "workspace", "way")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Mkdir(way, 0o700)
			_ = os.RemoveAll(way)
			_ = os.Symlink(outside, way)
			_ = os.Remove(way)
		}
	}()
	for i := range 500 {
		_, _ = s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: fmt.Sprintf("way/%d", i), MakeParents: true}, strings.NewReader("x"))
		_, _ = s.MakeDirectory(t.Context(), "", "way/sub", 0)
		_, _ = s.SetFileMode(t.Context(), "", "way", 0o751)
		_ = s.RemoveFile(t.Context(), "", "way", true)
	}
	close(stop)
	<-stopped
	entries, err := os.ReadDir(outside)
	assert.NilError(t, err)
	assert.Equal(t, len(entries), 0)
	info, err := os.Stat(outside)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), fs.FileMode(0o700))
}

func TestModesAreSetOfWhatIsInsideOnly(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "file", "text")
	s.link(t, "file", "inside")
	s.link(t, filepath.Join(s.dir, "secret"), "outside")
	assert.NilError(t, syscall.Mkfifo(filepath.Join(s.dir, "workspace", "pipe"), 0o600))
	for _, name := range []string{"file", "inside", "pipe"} {
		for _, mode := range []fs.FileMode{0, 0o741} {
			info, err := s.SetFileMode(t.Context(), "", name, mode)
			assert.NilError(t, err, name)
			assert.Equal(t, info.Mode, mode, name)
		}
	}
	for name, want := range map[string]sdk.Code{
		"outside": sdk.CodeInvalidRequest, ".": sdk.CodeInvalidRequest, "/etc/passwd": sdk.CodeInvalidRequest, "absent": sdk.CodeNotFound, "file/below": sdk.CodeConflict,
	} {
		_, err := s.SetFileMode(t.Context(), "", name, 0o777)
		assert.Check(t, is.Equal(codeOf(err), want), "%s: %v", name, err)
	}
	info, err := os.Stat(filepath.Join(s.dir, "secret"))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), fs.FileMode(0o600))
}

func TestAFileAppearsWholeOrNotAtAll(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "file", "before")
	_, err := s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: "file"}, io.MultiReader(strings.NewReader("half"), failing{}))
	assert.ErrorContains(t, err, "broke off")
	text, err := s.read(t.Context(), "file")
	assert.NilError(t, err)
	assert.Equal(t, text, "before")
	entries, err := os.ReadDir(filepath.Join(s.dir, "workspace"))
	assert.NilError(t, err)
	assert.Equal(t, len(entries), 1, "no draft is left")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broke off") }

// A pipe would wait for its other end, a device might never end.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	s := newSandbox(t)
	assert.NilError(t, unix.Mkfifo(filepath.Join(s.dir, "workspace", "pipe"), 0o600))
	_, err := s.read(t.Context(), "pipe")
	assert.Equal(t, codeOf(err), sdk.CodeConflict)
	_, err = s.CopyFile(t.Context(), sdk.MoveFileRequest{From: "pipe", To: "copy"})
	assert.Equal(t, codeOf(err), sdk.CodeConflict)
	truncated, err := s.SearchFiles(t.Context(), sdk.SearchFilesRequest{Path: ".", Pattern: "x", Limit: 1}, func([]sdk.FileMatch) error { return nil })
	assert.NilError(t, err)
	assert.Assert(t, !truncated)
}

func TestListsAreInOrderAndBounded(t *testing.T) {
	s := newSandbox(t)
	for _, name := range []string{"b/c", "b-c", "a/x.txt", "a/y/z.txt"} {
		s.write(t, name, "")
	}
	s.link(t, "a", "link")
	names, truncated := s.list(t, sdk.ListFilesRequest{Path: ".", Depth: 9, Limit: 100})
	assert.DeepEqual(t, names, []string{"/workspace/a", "/workspace/a/x.txt", "/workspace/a/y", "/workspace/a/y/z.txt", "/workspace/b", "/workspace/b/c", "/workspace/b-c", "/workspace/link"})
	assert.Assert(t, !truncated)
	names, truncated = s.list(t, sdk.ListFilesRequest{Path: ".", Depth: 1, Limit: 2})
	assert.DeepEqual(t, names, []string{"/workspace/a", "/workspace/b"})
	assert.Assert(t, truncated)
	names, _ = s.list(t, sdk.ListFilesRequest{Path: "link", Depth: 9, Limit: 9, Glob: "**/*.txt"})
	assert.DeepEqual(t, names, []string{"/workspace/link/x.txt", "/workspace/link/y/z.txt"}) // below the path that was asked for
	_, err := s.ListFiles(t.Context(), sdk.ListFilesRequest{Path: "b/c", Depth: 1, Limit: 1}, nil)
	assert.Equal(t, codeOf(err), sdk.CodeConflict)
	_, err = s.ListFiles(t.Context(), sdk.ListFilesRequest{Path: ".", Glob: "[", Depth: 1, Limit: 1}, nil)
	assert.Equal(t, codeOf(err), sdk.CodeInvalidRequest)
}

func TestEverythingLongEndsWithItsContext(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "in/file", "text")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.ListFiles(ctx, sdk.ListFilesRequest{Path: ".", Depth: 9, Limit: 9}, func([]sdk.FileInfo) error { return nil })
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.SearchFiles(ctx, sdk.SearchFilesRequest{Path: ".", Pattern: "x", Limit: 9}, nil)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.CopyFile(ctx, sdk.MoveFileRequest{From: "in", To: "copy"})
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{Paths: []string{"in/file"}, Old: "t", New: "T"})
	assert.ErrorIs(t, err, context.Canceled)
	err = s.WatchFiles(ctx, sdk.WatchFilesRequest{Path: "."}, func() error { return nil }, nil)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.WriteArchive(ctx, "", ".", archived(t, tar.Header{Name: "a"}))
	assert.ErrorIs(t, err, context.Canceled)
	if archive, err := s.ReadArchive(ctx, sdk.ReadArchiveRequest{Directory: "."}); err == nil {
		_, err = io.ReadAll(archive)
		assert.ErrorIs(t, err, context.Canceled)
		assert.NilError(t, archive.Close())
	}
	names, _ := s.list(t, sdk.ListFilesRequest{Path: ".", Depth: 9, Limit: 9})
	assert.DeepEqual(t, names, []string{"/workspace/in", "/workspace/in/file"})
}

// A pattern of a thousand alternatives for each letter of a long line.
func TestASearchWithinALineCanBeStopped(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "long", strings.Repeat("aB", 30_000))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.SearchFiles(ctx, sdk.SearchFilesRequest{Path: ".", Pattern: "(?i)[a-z]{1000}[a-z]{900}c", Limit: 1}, func([]sdk.FileMatch) error { return nil })
	assert.Assert(t, err != nil)
	assert.Assert(t, time.Since(began) < time.Minute, "%v", time.Since(began))
}

func TestSearchAndReplace(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "a.txt", "one\r\ntwo words\nlast "+strings.Repeat("é", 600)+"x two")
	s.write(t, "binary", "two\x00")
	s.write(t, "b/c.txt", "two")
	var matches []sdk.FileMatch
	search := func(req sdk.SearchFilesRequest) bool {
		t.Helper()
		matches = nil
		req.Limit = max(req.Limit, 1)
		truncated, err := s.SearchFiles(t.Context(), req, func(some []sdk.FileMatch) error {
			matches = append(matches, some...)
			return nil
		})
		assert.NilError(t, err)
		return truncated
	}
	assert.Assert(t, !search(sdk.SearchFilesRequest{Path: ".", Pattern: "TWO", IgnoreCase: true, Limit: 9}))
	assert.Equal(t, len(matches), 3)
	assert.DeepEqual(t, matches[0], sdk.FileMatch{Path: "/workspace/a.txt", Line: 2, Column: 1, Text: "two words"})
	assert.Equal(t, len(matches[1].Text), sdk.MaxMatchText-1, "half a letter is left out")
	assert.Assert(t, search(sdk.SearchFilesRequest{Path: ".", Pattern: "two", Limit: 1}))
	search(sdk.SearchFilesRequest{Path: "a.txt", Pattern: "e$", Limit: 9})
	assert.Equal(t, len(matches), 1, "the end of a line is no part of it")
	search(sdk.SearchFilesRequest{Path: ".", Pattern: "t.o", Literal: true, Limit: 9})
	assert.Equal(t, len(matches), 0)
	// By the way of patterns that can be interrupted too.
	search(sdk.SearchFilesRequest{Path: ".", Pattern: "(?:z{0,900})two w", Limit: 9})
	assert.Equal(t, len(matches), 1)
	assert.Equal(t, matches[0].Column, 1)

	replaced, err := s.ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{Paths: []string{"a.txt", "b/c.txt"}, Old: "two", New: "2"})
	assert.NilError(t, err)
	assert.DeepEqual(t, replaced, []sdk.FileReplacement{{Path: "/workspace/a.txt", Count: 2}, {Path: "/workspace/b/c.txt", Count: 1}})
	text, err := s.read(t.Context(), "b/c.txt")
	assert.NilError(t, err)
	assert.Equal(t, text, "2")
}

func TestMovesAndCopies(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "a/file", "text")
	assert.NilError(t, os.Chmod(filepath.Join(s.dir, "workspace", "a"), 0o500))
	s.write(t, "other", "other")
	move := func(from, to string, overwrite bool) sdk.Code {
		_, err := s.MoveFile(t.Context(), sdk.MoveFileRequest{From: from, To: to, Overwrite: overwrite})
		return codeOf(err)
	}
	assert.Equal(t, move("a", "a/b", false), sdk.CodeInvalidRequest)
	assert.Equal(t, move("other", "a", true), sdk.CodeConflict, "a directory is never replaced")
	assert.Equal(t, move("other", "a/file", false), sdk.CodeConflict)
	assert.Equal(t, move("nothing", "b", false), sdk.CodeNotFound)
	assert.Equal(t, move("other", "no/b", false), sdk.CodeNotFound)
	assert.Equal(t, move(".", "b", false), sdk.CodeInvalidRequest)
	_, err := s.CopyFile(t.Context(), sdk.MoveFileRequest{From: "a", To: "copy"})
	assert.NilError(t, err)
	info, err := s.StatFile(t.Context(), "", "copy")
	assert.NilError(t, err)
	assert.Equal(t, info.Mode, os.FileMode(0o500))
	// To the other place, which is copied, and removed though it is read-only.
	assert.Equal(t, move("a", "/tmp/a", false), sdk.Code(""))
	text, err := s.read(t.Context(), "/tmp/a/file")
	assert.NilError(t, err)
	assert.Equal(t, text, "text")
	_, err = s.StatFile(t.Context(), "", "a")
	assert.Equal(t, codeOf(err), sdk.CodeNotFound)
}

func TestArchivesComeBackAsTheyWere(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "project/main.py", "print(1)")
	s.link(t, "main.py", "project/link")
	assert.NilError(t, unix.Mkfifo(filepath.Join(s.dir, "workspace", "project", "pipe"), 0o600))
	archive, err := s.ReadArchive(t.Context(), sdk.ReadArchiveRequest{Directory: ".", Paths: []string{"project"}})
	assert.NilError(t, err)
	content, err := io.ReadAll(archive)
	assert.NilError(t, err)
	assert.NilError(t, archive.Close())
	summary, err := s.WriteArchive(t.Context(), "", "/tmp", bytes.NewReader(content))
	assert.NilError(t, err)
	assert.DeepEqual(t, summary, sdk.ArchiveSummary{Files: 2, Bytes: 8})
	names, _ := s.list(t, sdk.ListFilesRequest{Path: "/tmp", Depth: 9, Limit: 9})
	assert.DeepEqual(t, names, []string{"/tmp/project", "/tmp/project/link", "/tmp/project/main.py"})
	for _, wrong := range []string{"..", "/etc", "../tmp"} {
		_, err := s.ReadArchive(t.Context(), sdk.ReadArchiveRequest{Directory: ".", Paths: []string{wrong}})
		assert.Equal(t, codeOf(err), sdk.CodeInvalidRequest, wrong)
	}
}

// Whoever has enough of an archive closes it, and nothing goes on.
func TestAnArchiveThatIsNotReadToItsEndEnds(t *testing.T) {
	s := newSandbox(t)
	s.write(t, "large", strings.Repeat("x", 1<<20))
	archive, err := s.ReadArchive(t.Context(), sdk.ReadArchiveRequest{Directory: "."})
	assert.NilError(t, err)
	_, err = io.ReadFull(archive, make([]byte, 600))
	assert.NilError(t, err)
	assert.NilError(t, archive.Close())
}

func TestArchivesOfOthersAreRefused(t *testing.T) {
	link := tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/"}
	for name, headers := range map[string][]tar.Header{
		"an absolute name":             {{Name: "/a"}},
		"a name that goes up":          {{Name: "a/../../b"}},
		"through a link of its own":    {link, {Name: "out/etc"}},
		"a directory through a link":   {link, {Name: "out/etc/", Typeflag: tar.TypeDir}},
		"a link where a directory was": {link, {Name: "out/", Typeflag: tar.TypeDir}},
		"a hard link":                  {{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}},
		"a device":                     {{Name: "a", Typeflag: tar.TypeChar}},
		"a pipe":                       {{Name: "a", Typeflag: tar.TypeFifo}},
		"a deep nest":                  {{Name: strings.Repeat("a/", 300) + "a"}},
		"a link to nothing":            {{Name: "a", Typeflag: tar.TypeSymlink}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t)
			_, err := s.WriteArchive(t.Context(), "", ".", archived(t, headers...))
			assert.Equal(t, codeOf(err), sdk.CodeInvalidRequest, "%v", err)
		})
	}
	s := newSandbox(t)
	whole := archived(t, tar.Header{Name: "a", Size: 1000}).Bytes()
	_, err := s.WriteArchive(t.Context(), "", ".", bytes.NewReader(whole[:700]))
	assert.Equal(t, codeOf(err), sdk.CodeInvalidRequest)
	_, err = s.WriteArchive(t.Context(), "", ".", strings.NewReader(strings.Repeat("x", 2000)))
	assert.Equal(t, codeOf(err), sdk.CodeInvalidRequest)
	_, err = s.WriteArchive(t.Context(), "", ".", io.MultiReader(bytes.NewReader(whole[:700]), failing{}))
	assert.ErrorContains(t, err, "broke off")
	names, _ := s.list(t, sdk.ListFilesRequest{Path: ".", Depth: 9, Limit: 9})
	assert.Equal(t, len(names), 0)
}

func TestChangesAreToldAsTheyCome(t *testing.T) {
	s := newSandbox(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, told, ended := make(chan struct{}), make(chan sdk.FileChange, 100), make(chan error, 1)
	go func() {
		ended <- s.WatchFiles(ctx, sdk.WatchFilesRequest{Path: ".", Recursive: true}, func() error { close(ready); return nil }, func(changes []sdk.FileChange) error {
			for _, c := range changes {
				told <- c
			}
			return nil
		})
	}()
	<-ready
	waitFor := func(want sdk.FileChange) {
		t.Helper()
		for c := range told {
			if c == want {
				return
			}
			assert.Assert(t, !strings.Contains(c.Path, ".sandbox-draft-"), "%v", c)
		}
	}
	s.write(t, "new/deep/file", "text")
	waitFor(sdk.FileChange{Kind: sdk.FileCreated, Path: "/workspace/new/deep/file"})
	_, err := s.MoveFile(t.Context(), sdk.MoveFileRequest{From: "new", To: "old"})
	assert.NilError(t, err)
	waitFor(sdk.FileChange{Kind: sdk.FileRenamed, Path: "/workspace/new"})
	assert.NilError(t, os.WriteFile(filepath.Join(s.dir, "workspace", "old", "deep", "file"), []byte("more"), 0o600))
	waitFor(sdk.FileChange{Kind: sdk.FileModified, Path: "/workspace/old/deep/file"})
	assert.NilError(t, s.RemoveFile(t.Context(), "", "old/deep", true))
	waitFor(sdk.FileChange{Kind: sdk.FileRemoved, Path: "/workspace/old/deep/file"})
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
}

func TestWatchersAreBounded(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "workspace"), 0o700))
	files := localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return dir, nil }, Watchers: 1})
	watch := func(ready func() error) error {
		return files.WatchFiles(t.Context(), sdk.WatchFilesRequest{Path: "."}, ready, nil)
	}
	enough := errors.New("enough")
	for range 2 { // one that has ended makes room
		assert.ErrorIs(t, watch(func() error {
			assert.Equal(t, codeOf(watch(nil)), sdk.CodeQuotaExceeded)
			return enough
		}), enough)
	}
}

// All that names a file is called with the rights that are given, never one within another.
func TestRightsAreTakenForEveryName(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.MkdirAll(filepath.Join(dir, "workspace", "d"), 0o700))
	refused := errors.New("refused")
	allowed, within := true, false
	files := localfiles.New(localfiles.Options{
		Directory: func(string) (string, error) { return dir, nil },
		As: func(do func() error) error {
			assert.Check(t, !within)
			within = true
			defer func() { within = false }()
			if !allowed {
				return refused
			}
			return do()
		},
	})
	ctx := t.Context()
	calls := map[string]func() error{
		"write": func() error {
			_, err := files.WriteFile(ctx, sdk.WriteFileRequest{Path: "d/f", MakeParents: true}, strings.NewReader("a"))
			return err
		},
		"stat": func() error { _, err := files.StatFile(ctx, "", "d"); return err },
		"make": func() error { _, err := files.MakeDirectory(ctx, "", "e/f", 0o700); return err },
		"mode": func() error { _, err := files.SetFileMode(ctx, "", "d", 0o700); return err },
		"copy": func() error { _, err := files.CopyFile(ctx, sdk.MoveFileRequest{From: "d", To: "copy"}); return err },
		"archive": func() error {
			_, err := files.WriteArchive(ctx, "", ".", archived(t, tar.Header{Name: "g/h"}))
			return err
		},
		"list": func() error {
			_, err := files.ListFiles(ctx, sdk.ListFilesRequest{Path: ".", Depth: 9, Limit: 9}, func([]sdk.FileInfo) error { return nil })
			return err
		},
		"search": func() error {
			_, err := files.SearchFiles(ctx, sdk.SearchFilesRequest{Path: ".", Pattern: "x", Limit: 9}, nil)
			return err
		},
		"watch": func() error {
			ended, cancel := context.WithCancel(ctx)
			err := files.WatchFiles(ended, sdk.WatchFilesRequest{Path: ".", Recursive: true}, func() error { cancel(); return nil }, nil)
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
		"remove": func() error {
			err := files.RemoveFile(ctx, "", "copy", true)
			if codeOf(err) == sdk.CodeNotFound {
				return nil // it was not copied yet
			}
			return err
		},
	}
	for name, call := range calls {
		allowed = true
		assert.Check(t, call(), name)
		allowed = false
		assert.Check(t, is.ErrorIs(call(), refused), name)
	}
}

func TestOtherPlaces(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	files := localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return dir, nil }, Places: []string{"/data"}})
	info, err := files.WriteFile(t.Context(), sdk.WriteFileRequest{Path: "a", Mode: 0o640}, strings.NewReader(""))
	assert.NilError(t, err)
	assert.Equal(t, info.Path, "/data/a")
	assert.Equal(t, info.Mode, os.FileMode(0o640))
	_, err = files.StatFile(t.Context(), "", "/workspace/a")
	assert.Equal(t, codeOf(err), sdk.CodeInvalidRequest)
	assert.Equal(t, codeOf(files.RemoveFile(t.Context(), "", "/data", true)), sdk.CodeInvalidRequest)
}

// What is read and written is as large as what a message carries.
func TestAChunkIsThatOfTheProtocol(t *testing.T) {
	assert.Equal(t, localfiles.ChunkBytes, filechunk.Size)
}

func FuzzReplace(f *testing.F) {
	f.Add("aaaa", "aa", "b", 3)
	f.Add(strings.Repeat("ab", 100), "ba", "", 7)
	f.Fuzz(func(t *testing.T, text, old, replacement string, repeat int) {
		if old == "" {
			return
		}
		text = strings.Repeat(text, min(max(repeat, 1), 1000))
		var got strings.Builder
		count, err := localfiles.ReplaceAll(t.Context(), &got, strings.NewReader(text), []byte(old), []byte(replacement))
		assert.NilError(t, err)
		assert.Equal(t, count, int64(strings.Count(text, old)))
		assert.Equal(t, got.String(), strings.ReplaceAll(text, old, replacement))
	})
}

func FuzzPlace(f *testing.F) {
	for _, path := range []string{"a", "/tmp/../workspace", "..", "/workspacex", "//workspace//a/./b/", "/", "a\x00", "\xff", "../tmp/x"} {
		f.Add(path)
	}
	roots := []string{"/workspace", "/tmp"}
	f.Fuzz(func(t *testing.T, path string) {
		root, name, err := localfiles.Place(roots, path)
		if err != nil {
			assert.Equal(t, codeOf(err), sdk.CodeInvalidRequest)
			return
		}
		assert.Assert(t, root == roots[0] || root == roots[1])
		assert.Assert(t, filepath.IsLocal(name) && filepath.Clean(name) == name, "%q", name)
		assert.Assert(t, !strings.ContainsRune(name, 0))
	})
}
