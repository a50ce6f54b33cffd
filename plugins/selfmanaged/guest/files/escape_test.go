package files_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Code swaps a directory for a link that leads out, again and again, while calls go
// through it.
func TestNoRaceLeadsOut(t *testing.T) {
	s := serve(t, nil)
	outside := t.TempDir()
	assert.NilError(t, os.Chmod(outside, 0o1777))
	assert.NilError(t, os.WriteFile(filepath.Join(outside, "f"), []byte("secret"), 0o666))
	assert.NilError(t, s.write(t, "real/f", "inside"))
	assert.NilError(t, s.write(t, "other", "inside"))
	s.byCode(t, "link", linkTo(outside))

	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		swap := func(a, b string) {
			err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(s.workspace, a), unix.AT_FDCWD, filepath.Join(s.workspace, b), unix.RENAME_EXCHANGE)
			assert.Check(t, err)
		}
		for {
			select {
			case <-stop:
				return
			default:
				swap("real", "link")
			}
		}
	})
	for i := range 100 {
		text, err := s.read(t, "real/f")
		assert.Check(t, err != nil || text == "inside", "%q", text)
		_ = s.write(t, fmt.Sprintf("real/w%d", i), "x")
		_, _ = s.MoveFile(t.Context(), sdk.MoveFileRequest{From: "other", To: "real/other", Overwrite: true})
		_, _ = s.CopyFile(t.Context(), sdk.MoveFileRequest{From: "real/f", To: "other", Overwrite: true})
		_, _ = s.MakeDirectory(t.Context(), "", fmt.Sprintf("real/d%d/e", i), 0)
		_ = s.RemoveFile(t.Context(), "", "real/f2", true)
		_, _ = s.SetFileMode(t.Context(), "", "real", 0o751)
		_, _ = s.SetFileMode(t.Context(), "", "real/f", 0o751)
		_, _ = s.WriteArchive(t.Context(), "", "real", archive(t, entry{name: fmt.Sprintf("a%d/b", i), text: "x"}))
		_, _ = s.ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{Paths: []string{"real/f"}, Old: "secret", New: "changed"})
		_, _ = s.ListFiles(t.Context(), sdk.ListFilesRequest{Path: "real", Depth: 9, Limit: 100}, func(infos []sdk.FileInfo) error { return nil })
		_, _ = s.SearchFiles(t.Context(), sdk.SearchFilesRequest{Path: ".", Pattern: "secret", Limit: 9}, func(m []sdk.FileMatch) error {
			t.Errorf("found %v", m)
			return nil
		})
	}
	close(stop)
	wg.Wait()
	entries, err := os.ReadDir(outside)
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 1), "something was written outside: %v", entries)
	text, err := os.ReadFile(filepath.Join(outside, "f"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "secret")
}

func TestAPipeNeverBlocks(t *testing.T) {
	s := serve(t, nil)
	s.byCode(t, "pipe", pipe)
	ctx := t.Context()
	_, readErr := s.read(t, "pipe")
	_, _, belowErr := s.ReadFile(ctx, sdk.ReadFileRequest{Path: "pipe/x"})
	_, archiveErr := s.ReadArchive(ctx, sdk.ReadArchiveRequest{Directory: "pipe"})
	_, searchErr := s.SearchFiles(ctx, sdk.SearchFilesRequest{Path: "pipe", Pattern: "x", Limit: 1}, nil)
	_, replaceErr := s.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{Paths: []string{"pipe"}, Old: "x"})
	_, copyErr := s.CopyFile(ctx, sdk.MoveFileRequest{From: "pipe", To: "copy"})
	for name, err := range map[string]error{
		"read": readErr, "below": belowErr, "write": s.write(t, "pipe", ""), "archive": archiveErr,
		"search": searchErr, "replace": replaceErr, "copy": copyErr,
		"watch": s.WatchFiles(ctx, sdk.WatchFilesRequest{Path: "pipe"}, nil, nil),
	} {
		assert.Check(t, is.Equal(code(err), sdk.CodeConflict), "%s: %v", name, err)
	}
	info, err := s.StatFile(ctx, "", "pipe")
	assert.NilError(t, err)
	assert.Equal(t, info.Type, sdk.FileOther)
}

func TestLoopsAndDepthEnd(t *testing.T) {
	s := serve(t, nil)
	s.byCode(t, "a", linkTo("b"))
	s.byCode(t, "b", linkTo("a"))
	_, err := s.read(t, "a/x")
	assert.Equal(t, code(err), sdk.CodeInvalidRequest, "%v", err)

	deep := strings.Repeat("d/", 300)
	assert.NilError(t, os.MkdirAll(filepath.Join(s.workspace, deep), 0o777))
	_, truncated := s.list(t, sdk.ListFilesRequest{Path: ".", Depth: 1 << 20, Limit: 10_000})
	assert.Check(t, truncated)
	content, err := s.ReadArchive(t.Context(), sdk.ReadArchiveRequest{Directory: "."})
	if err == nil {
		_, err = io.Copy(io.Discard, content)
		assert.Check(t, content.Close())
	}
	assert.Equal(t, code(err), sdk.CodeInvalidRequest, "an archive that lacks something is none: %v", err)
}

func TestNamesThatAreNotUTF8(t *testing.T) {
	s := serve(t, nil)
	s.byCode(t, "bad\xff", func(path string) error { return os.WriteFile(path, nil, 0o644) })
	paths, _ := s.list(t, sdk.ListFilesRequest{Path: ".", Depth: 1, Limit: 9})
	assert.DeepEqual(t, paths, []string{"bad\ufffd"})
	_, err := s.read(t, "bad\ufffd")
	assert.Equal(t, code(err), sdk.CodeNotFound)
	content, err := s.ReadArchive(t.Context(), sdk.ReadArchiveRequest{Directory: "."})
	assert.NilError(t, err)
	sent, err := io.ReadAll(content)
	assert.NilError(t, errors.Join(err, content.Close()))
	assert.NilError(t, os.Remove(filepath.Join(s.workspace, "bad\xff")))
	_, err = s.WriteArchive(t.Context(), "", ".", strings.NewReader(string(sent)))
	assert.NilError(t, err)
	_, err = os.Lstat(filepath.Join(s.workspace, "bad\xff"))
	assert.NilError(t, err, "archives carry any name")
}
