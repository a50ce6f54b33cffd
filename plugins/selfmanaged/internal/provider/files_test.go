package provider

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What each call does is tested beside the guest's package. Here it is the kernel
// of a real sandbox: its file systems, the rights of its threads, its inotify.
func TestFiles(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testFiles)
}

func testFiles(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, map[string]any{"workspace_mb": 32})
	id := create(t, p, templateBash)
	shell := func(t *testing.T, code string) string {
		t.Helper()
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: code})
		assert.NilError(t, err)
		assert.Equal(t, got.ExitCode, 0, got.stderr)
		return got.stdout
	}
	write := func(path, text string) error {
		_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: path, MakeParents: true}, strings.NewReader(text))
		return err
	}
	read := func(path string) (string, error) {
		_, content, err := p.ReadFile(t.Context(), sdk.ReadFileRequest{InstanceID: id, Path: path})
		if err != nil {
			return "", err
		}
		defer content.Close()
		text, err := io.ReadAll(content)
		return string(text), err
	}
	code := func(err error) sdk.Code { return sdk.CodeOf(err) }

	t.Run("what is written belongs to code, and code's files can be read", func(t *testing.T) {
		assert.NilError(t, write("a/b/text", "hello"))
		assert.Equal(t, shell(t, "stat -c '%u:%g %a %n' a a/b a/b/text; cat a/b/text"), "1000:1000 755 a\n1000:1000 755 a/b\n1000:1000 644 a/b/text\nhello")
		shell(t, "echo from code > from; chmod 600 from; echo more > /tmp/more")
		text, err := read("from")
		assert.NilError(t, err)
		assert.Equal(t, text, "from code\n")
		text, err = read("/tmp/more")
		assert.NilError(t, err)
		assert.Equal(t, text, "more\n")
	})
	t.Run("the rights of code are the rights of the calls", func(t *testing.T) {
		shell(t, "mkdir closed; echo x > closed/f; chmod 000 closed; echo y > unreadable; chmod 000 unreadable")
		_, err := read("closed/f")
		assert.Equal(t, code(err), sdk.CodeNotAllowed, "%v", err)
		_, err = read("unreadable")
		assert.Equal(t, code(err), sdk.CodeNotAllowed, "%v", err)
		assert.Equal(t, code(write("closed/g", "")), sdk.CodeNotAllowed)
		shell(t, "chmod 755 closed; rm -r closed unreadable")
	})
	t.Run("nothing leads out", func(t *testing.T) {
		shell(t, `ln -s /etc/passwd absolute; ln -s ../etc/passwd relative; ln -s .. up; ln -s /proc/1/root/etc proc; mkfifo fifo
			python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`)
		for _, path := range []string{
			"absolute", "relative", "up/etc/passwd", "proc/passwd", "../etc/passwd", "/etc/passwd", "/run/sandbox/runner.py",
			"/proc/self/status", "/dev/zero", "/workspace/../etc/passwd", "/dev/shm/x", "nul\x00byte", "",
			strings.Repeat("n", 256), strings.Repeat("d/", 2100),
		} {
			_, err := read(path)
			assert.Check(t, is.Equal(code(err), sdk.CodeInvalidRequest), "%q: %v", path, err)
			want := sdk.CodeInvalidRequest
			if path == "absolute" || path == "relative" {
				want = sdk.CodeConflict // the link itself is in the way
			}
			assert.Check(t, is.Equal(code(write(path, "x")), want), "%q", path)
		}
		for _, path := range []string{"fifo", "socket"} {
			_, err := read(path)
			assert.Check(t, is.Equal(code(err), sdk.CodeConflict), "%s: %v", path, err)
			assert.Check(t, is.Equal(code(write(path, "x")), sdk.CodeConflict))
			_, err = p.ListFiles(t.Context(), sdk.ListFilesRequest{InstanceID: id, Path: path, Depth: 1, Limit: 1}, nil)
			assert.Check(t, is.Equal(code(err), sdk.CodeConflict), "%s: %v", path, err)
		}
		assert.Equal(t, shell(t, "rm absolute relative up proc fifo socket; ls -A"), "a\nartifacts\nfrom\n")
	})
	t.Run("links that stay inside are followed", func(t *testing.T) {
		shell(t, "ln -s /workspace/a/b inside; ln -s a/../a/b/text textlink")
		for _, path := range []string{"inside/text", "textlink"} {
			text, err := read(path)
			assert.NilError(t, err)
			assert.Check(t, is.Equal(text, "hello"))
		}
		assert.NilError(t, write("inside/new", "x"))
		assert.Equal(t, shell(t, "ls a/b; rm a/b/new inside textlink"), "new\ntext\n")
	})
	t.Run("names are kept byte for byte", func(t *testing.T) {
		composed, decomposed := "caf\u00e9", "cafe\u0301"
		assert.NilError(t, write(composed, "1"))
		assert.NilError(t, write(decomposed, "2"))
		for path, want := range map[string]string{composed: "1", decomposed: "2"} {
			text, err := read(path)
			assert.NilError(t, err)
			assert.Equal(t, text, want)
		}
		assert.Equal(t, shell(t, "ls -1 caf* | wc -l; rm caf*"), "2\n")
	})
	t.Run("a disk that is full says so and keeps nothing", func(t *testing.T) {
		_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "big"}, io.LimitReader(zeros{}, 10<<30))
		assert.Equal(t, code(err), sdk.CodeQuotaExceeded, "%v", err)
		assert.ErrorContains(t, err, "32 MiB")
		assert.Equal(t, shell(t, "ls -A"), "a\nartifacts\nfrom\n")
		assert.Check(t, write("small", "x"))
	})
	t.Run("an upload that breaks off leaves the old file", func(t *testing.T) {
		broken := errors.New("broken")
		_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "small"}, io.MultiReader(strings.NewReader(strings.Repeat("y", 1<<20)), iotest.ErrReader(broken)))
		assert.ErrorIs(t, err, broken)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			return poll.Compare(is.Equal(shell(t, "ls -A; cat small"), "a\nartifacts\nfrom\nsmall\nx"))
		}, poll.WithTimeout(2*time.Minute))
	})
	t.Run("a move goes from one file system to the other", func(t *testing.T) {
		shell(t, "mkdir -p tree/sub; echo 1 > tree/sub/f; ln -s sub/f tree/link; chmod 711 tree/sub")
		moved, err := p.MoveFile(t.Context(), sdk.MoveFileRequest{InstanceID: id, From: "tree", To: "/tmp/tree"})
		assert.NilError(t, err)
		assert.Equal(t, moved.Path, "/tmp/tree")
		assert.Equal(t, shell(t, "cd /tmp/tree; cat link; readlink link; stat -c %a sub; ls /workspace/tree 2>&1 | grep -c No"), "1\nsub/f\n711\n1\n")
		_, err = p.MoveFile(t.Context(), sdk.MoveFileRequest{InstanceID: id, From: "from", To: "small"})
		assert.Equal(t, code(err), sdk.CodeConflict, "nothing is overwritten unless that is wanted")
		_, err = p.MoveFile(t.Context(), sdk.MoveFileRequest{InstanceID: id, From: "from", To: "small", Overwrite: true})
		assert.NilError(t, err)
		assert.Equal(t, shell(t, "cat small; ls"), "from code\na\nartifacts\nsmall\n")
	})
	t.Run("a tree is removed whole", func(t *testing.T) {
		assert.Equal(t, code(p.RemoveFile(t.Context(), id, "/tmp/tree", false)), sdk.CodeConflict)
		assert.NilError(t, p.RemoveFile(t.Context(), id, "/tmp/tree", true))
		assert.Equal(t, code(p.RemoveFile(t.Context(), id, "/tmp/tree", true)), sdk.CodeNotFound)
		assert.Equal(t, code(p.RemoveFile(t.Context(), id, "/tmp", true)), sdk.CodeInvalidRequest)
	})
	t.Run("changes by code are told", func(t *testing.T) { testWatching(t, p, id, shell) })
	t.Run("archives go in and out", func(t *testing.T) {
		var sent bytes.Buffer
		writer := tar.NewWriter(&sent)
		for _, h := range []*tar.Header{
			{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "project/", Typeflag: tar.TypeDir, Mode: 0o750},
			{Name: "project/run.sh", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 4},
			{Name: "project/link", Typeflag: tar.TypeSymlink, Linkname: "run.sh"},
		} {
			assert.NilError(t, writer.WriteHeader(h))
			_, err := io.WriteString(writer, "echo"[:h.Size])
			assert.NilError(t, err)
		}
		assert.NilError(t, writer.Close())
		summary, err := p.WriteArchive(t.Context(), id, ".", bytes.NewReader(sent.Bytes()))
		assert.NilError(t, err)
		assert.DeepEqual(t, summary, sdk.ArchiveSummary{Files: 2, Bytes: 4})
		assert.Equal(t, shell(t, "stat -c '%u %a %F %n' project project/*"), "1000 750 directory project\n1000 777 symbolic link project/link\n1000 755 regular file project/run.sh\n")

		shell(t, "mkfifo project/fifo")
		content, err := p.ReadArchive(t.Context(), sdk.ReadArchiveRequest{InstanceID: id, Directory: ".", Paths: []string{"project"}})
		assert.NilError(t, err)
		defer content.Close()
		var names []string
		reader := tar.NewReader(content)
		for h, err := reader.Next(); !errors.Is(err, io.EOF); h, err = reader.Next() {
			assert.NilError(t, err)
			names = append(names, h.Name+" "+h.Linkname)
		}
		assert.DeepEqual(t, names, []string{"project/ ", "project/link run.sh", "project/run.sh "})
	})
	t.Run("text is found and replaced", func(t *testing.T) {
		shell(t, `printf 'one\ntwo words\n' > a/words; printf 'two\0' > a/binary`)
		var got []sdk.FileMatch
		_, err := p.SearchFiles(t.Context(), sdk.SearchFilesRequest{InstanceID: id, Path: ".", Pattern: "w[o]r", Limit: 10}, func(m []sdk.FileMatch) error {
			got = append(got, m...)
			return nil
		})
		assert.NilError(t, err)
		assert.DeepEqual(t, got, []sdk.FileMatch{{Path: "/workspace/a/words", Line: 2, Column: 5, Text: "two words"}})
		replaced, err := p.ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{InstanceID: id, Paths: []string{"a/words"}, Old: "two", New: "2"})
		assert.NilError(t, err)
		assert.DeepEqual(t, replaced, []sdk.FileReplacement{{Path: "/workspace/a/words", Count: 1}})
		assert.Equal(t, shell(t, "cat a/words"), "one\n2 words\n")
	})
	t.Run("a paused instance has none, and one that is read is not paused", func(t *testing.T) {
		_, content, err := p.ReadFile(t.Context(), sdk.ReadFileRequest{InstanceID: id, Path: "small"})
		assert.NilError(t, err)
		assert.Equal(t, code(p.Pause(t.Context(), id)), sdk.CodeConflict)
		assert.NilError(t, content.Close())
		assert.NilError(t, p.Pause(t.Context(), id))
		_, err = read("small")
		assert.Equal(t, code(err), sdk.CodeConflict, "%v", err)
		assert.NilError(t, p.Resume(t.Context(), id))
		_, err = read("small")
		assert.NilError(t, err)
	})
	t.Run("an instance that has gone has no files", func(t *testing.T) {
		assert.NilError(t, p.Destroy(t.Context(), id))
		_, err := read("small")
		assert.Equal(t, code(err), sdk.CodeNotFound)
	})
}

func testWatching(t *testing.T, p testProvider, id string, shell func(*testing.T, string) string) {
	shell(t, "mkdir -p watched/sub")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	ready, told, ended := make(chan struct{}), make(chan sdk.FileChange, 1000), make(chan error, 1)
	go func() {
		ended <- p.WatchFiles(ctx, sdk.WatchFilesRequest{InstanceID: id, Path: "watched", Recursive: true},
			func() error { close(ready); return nil },
			func(changes []sdk.FileChange) error {
				for _, c := range changes {
					told <- c
				}
				return nil
			})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	shell(t, "cd watched; echo 1 > sub/f; mv sub/f g; rm g; mkdir new; : > new/h")
	_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "watched/whole"}, strings.NewReader("x"))
	assert.NilError(t, err)
	var list []sdk.FileChange
	for last := (sdk.FileChange{Kind: sdk.FileCreated, Path: "/workspace/watched/whole"}); !slices.Contains(list, last); {
		select {
		case c := <-told:
			list = append(list, c)
		case err := <-ended:
			t.Fatalf("%v after %v", err, list)
		}
	}
	for _, want := range []sdk.FileChange{
		{Kind: sdk.FileCreated, Path: "/workspace/watched/sub/f"},
		{Kind: sdk.FileModified, Path: "/workspace/watched/sub/f"},
		{Kind: sdk.FileRenamed, Path: "/workspace/watched/sub/f"},
		{Kind: sdk.FileCreated, Path: "/workspace/watched/g"},
		{Kind: sdk.FileRemoved, Path: "/workspace/watched/g"},
		{Kind: sdk.FileCreated, Path: "/workspace/watched/new"},
		{Kind: sdk.FileCreated, Path: "/workspace/watched/new/h"},
	} {
		assert.Check(t, slices.Contains(list, want), "%v is not in %v", want, list)
	}
	assert.Check(t, !slices.ContainsFunc(list, func(c sdk.FileChange) bool { return strings.Contains(c.Path, "draft") }), "%v", list)
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
