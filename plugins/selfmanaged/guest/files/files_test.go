package files_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/files"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is the service with the client that the plugin uses, on two directories
// of this machine in place of /workspace and /tmp.
type served struct {
	*wire.Client
	workspace, temporary string
}

func serve(t *testing.T, room func() error) served {
	t.Helper()
	s := served{workspace: t.TempDir(), temporary: t.TempDir()}
	for _, dir := range []string{s.workspace, s.temporary} {
		assert.NilError(t, os.Chmod(dir, 0o1777)) // as in a sandbox
	}
	assert.NilError(t, os.Chmod(filepath.Dir(s.workspace), 0o755))
	server := grpc.NewServer(append(wire.EncodeErrors(), grpc.ForceServerCodecV2(filechunk.Codec()))...)
	files.Register(server, files.Options{Roots: []string{s.workspace, s.temporary}, Room: room})
	listener := bufconn.Listen(1 << 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:files", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, conn.Close())
		server.Stop()
		<-done
	})
	s.Client = wire.InstanceClient(conn)
	return s
}

func (s served) write(t *testing.T, path, text string) error {
	t.Helper()
	_, err := s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: path, MakeParents: true}, strings.NewReader(text))
	return err
}

func (s served) read(t *testing.T, path string) (string, error) {
	t.Helper()
	_, content, err := s.ReadFile(t.Context(), sdk.ReadFileRequest{Path: path})
	if err != nil {
		return "", err
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	return string(text), err
}

func (s served) list(t *testing.T, req sdk.ListFilesRequest) (paths []string, truncated bool) {
	t.Helper()
	truncated, err := s.ListFiles(t.Context(), req, func(infos []sdk.FileInfo) error {
		for _, i := range infos {
			paths = append(paths, strings.TrimPrefix(i.Path, s.workspace+"/"))
		}
		return nil
	})
	assert.NilError(t, err)
	return paths, truncated
}

// byCode makes a path below the workspace, as code does.
func (s served) byCode(t *testing.T, path string, create func(path string) error) {
	t.Helper()
	path = filepath.Join(s.workspace, path)
	assert.NilError(t, create(path))
	if os.Geteuid() == 0 {
		assert.NilError(t, os.Lchown(path, 1000, 1000))
	}
}

func linkTo(target string) func(string) error {
	return func(path string) error { return os.Symlink(target, path) }
}

func pipe(path string) error { return unix.Mkfifo(path, 0o644) }

func code(err error) sdk.Code { return sdk.CodeOf(err) }

func TestAListingIsInTheOrderOfPathsAndBounded(t *testing.T) {
	s := serve(t, nil)
	for _, path := range []string{"b/x.py", "b/sub/y.py", "a.txt", "a/z.py", ".hidden", "b.py"} {
		assert.NilError(t, s.write(t, path, ""))
	}
	s.byCode(t, "b/up", linkTo(".."))
	for name, test := range map[string]struct {
		req       sdk.ListFilesRequest
		want      string
		truncated bool
	}{
		"one level":                        {sdk.ListFilesRequest{Depth: 1, Limit: 100}, ".hidden a a.txt b b.py", false},
		"two levels":                       {sdk.ListFilesRequest{Depth: 2, Limit: 100}, ".hidden a a/z.py a.txt b b/sub b/up b/x.py b.py", false},
		"a limit":                          {sdk.ListFilesRequest{Depth: 9, Limit: 3}, ".hidden a a/z.py", true},
		"a limit just met":                 {sdk.ListFilesRequest{Depth: 1, Limit: 5}, ".hidden a a.txt b b.py", false},
		"a glob":                           {sdk.ListFilesRequest{Depth: 9, Limit: 9, Glob: "**/*.py"}, "a/z.py b/sub/y.py b/x.py b.py", false},
		"a glob with braces":               {sdk.ListFilesRequest{Depth: 9, Limit: 9, Glob: "{a,b}/[x-z].py"}, "a/z.py b/x.py", false},
		"a glob that is none of the names": {sdk.ListFilesRequest{Depth: 9, Limit: 9, Glob: "*.go"}, "", false},
		"a glob of many combinations":      {sdk.ListFilesRequest{Depth: 9, Limit: 9, Glob: strings.Repeat("{"+strings.Repeat("a,", 59)+"a}", 8) + "c"}, "", false},
		"a glob that tries every place":    {sdk.ListFilesRequest{Depth: 9, Limit: 9, Glob: strings.Repeat("*{a,b}", 100) + "c"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			test.req.Path = "."
			paths, truncated := s.list(t, test.req)
			assert.Equal(t, strings.Join(paths, " "), test.want)
			assert.Equal(t, truncated, test.truncated)
		})
	}
	for _, glob := range []string{"[a", "{a", strings.Repeat("x", 1001)} {
		_, err := s.ListFiles(t.Context(), sdk.ListFilesRequest{Path: ".", Depth: 1, Limit: 1, Glob: glob}, nil)
		assert.Equal(t, code(err), sdk.CodeInvalidRequest, "%.20s: %v", glob, err)
	}
}

func TestAPartOfAFileIsRead(t *testing.T) {
	s := serve(t, nil)
	assert.NilError(t, s.write(t, "f", "0123456789"))
	for name, test := range map[string]struct {
		offset, length int64
		want           string
	}{
		"all": {0, 0, "0123456789"}, "the middle": {2, 3, "234"}, "the rest": {7, 0, "789"}, "more than there is": {8, 100, "89"},
		"behind the end": {11, 1, ""}, "from the end": {-3, 2, "78"}, "from before the beginning": {-30, 2, "01"},
	} {
		t.Run(name, func(t *testing.T) {
			info, content, err := s.ReadFile(t.Context(), sdk.ReadFileRequest{Path: "f", Offset: test.offset, Length: test.length})
			assert.NilError(t, err)
			defer content.Close()
			text, err := io.ReadAll(content)
			assert.NilError(t, err)
			assert.Equal(t, string(text), test.want)
			assert.Equal(t, info.Size, int64(10))
		})
	}
}

func TestModes(t *testing.T) {
	s := serve(t, nil)
	for _, test := range []struct {
		asked, want os.FileMode
	}{{0, 0o644}, {0o755, 0o755}, {0, 0o755}, {0o600, 0o600}} { // on one file, one after the other
		info, err := s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: "f", Mode: test.asked}, strings.NewReader("x"))
		assert.NilError(t, err)
		assert.Equal(t, info.Mode, test.want)
	}
	made, err := s.MakeDirectory(t.Context(), "", "d/e", 0o700)
	assert.NilError(t, err)
	assert.Equal(t, made.Mode, os.FileMode(0o700))
	made, err = s.MakeDirectory(t.Context(), "", "d/e", 0o755)
	assert.NilError(t, err)
	assert.Equal(t, made.Mode, os.FileMode(0o700), "one that exists is left as it is")
	_, err = s.MakeDirectory(t.Context(), "", "f", 0)
	assert.Equal(t, code(err), sdk.CodeConflict)
}

func TestWhatIsInTheWayIsNotReplaced(t *testing.T) {
	s := serve(t, nil)
	assert.NilError(t, s.write(t, "d/f", "x"))
	assert.NilError(t, s.write(t, "f", "old"))
	for name, err := range map[string]error{
		"a directory for a file":          s.write(t, "d", ""),
		"a file for a directory":          s.write(t, "f/g", ""),
		"a directory that is not empty":   s.RemoveFile(t.Context(), "", "d", false),
		"a file that exists, for a move":  second(s.MoveFile(t.Context(), sdk.MoveFileRequest{From: "d/f", To: "f"})),
		"a file that exists, for a copy":  second(s.CopyFile(t.Context(), sdk.MoveFileRequest{From: "d/f", To: "f"})),
		"a directory, overwritten":        second(s.MoveFile(t.Context(), sdk.MoveFileRequest{From: "f", To: "d", Overwrite: true})),
		"a directory, overwritten by one": second(s.CopyFile(t.Context(), sdk.MoveFileRequest{From: "d", To: "d", Overwrite: true})),
	} {
		want := sdk.CodeConflict
		if strings.HasSuffix(name, "by one") {
			want = sdk.CodeInvalidRequest
		}
		assert.Check(t, is.Equal(code(err), want), "%s: %v", name, err)
	}
	text, err := s.read(t, "f")
	assert.NilError(t, err)
	assert.Equal(t, text, "old")
	paths, _ := s.list(t, sdk.ListFilesRequest{Path: ".", Depth: 9, Limit: 9})
	assert.DeepEqual(t, paths, []string{"d", "d/f", "f"})
	entries, err := os.ReadDir(s.workspace)
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 2), "no draft is left: %v", entries)
}

func second(_ sdk.FileInfo, err error) error { return err }

func TestACopyIsWholeAndItsOwn(t *testing.T) {
	s := serve(t, nil)
	assert.NilError(t, s.write(t, "from/sub/f", "text"))
	s.byCode(t, "from/link", linkTo("sub/f"))
	assert.NilError(t, os.Chmod(filepath.Join(s.workspace, "from", "sub", "f"), 0o751))
	assert.NilError(t, os.Chmod(filepath.Join(s.workspace, "from", "sub"), 0o755))
	for _, to := range []string{"to", filepath.Join(s.temporary, "to")} {
		_, err := s.CopyFile(t.Context(), sdk.MoveFileRequest{From: "from", To: to})
		assert.NilError(t, err)
		text, err := s.read(t, to+"/link")
		assert.NilError(t, err)
		assert.Equal(t, text, "text")
		info, err := s.StatFile(t.Context(), "", to+"/sub/f")
		assert.NilError(t, err)
		assert.Equal(t, info.Mode, os.FileMode(0o751))
	}
	for _, to := range []string{"from/sub/below", "from"} {
		_, err := s.CopyFile(t.Context(), sdk.MoveFileRequest{From: "from", To: to})
		assert.Equal(t, code(err), sdk.CodeInvalidRequest, "%v", err)
	}
}

func TestADiskOrMemoryThatIsFullEndsAnUpload(t *testing.T) {
	var full atomic.Bool
	s := serve(t, func() error {
		if full.Load() {
			return io.ErrShortWrite
		}
		return nil
	})
	content := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), readerFunc(func(p []byte) (int, error) {
		full.Store(true)
		return len(p), nil
	}))
	_, err := s.WriteFile(t.Context(), sdk.WriteFileRequest{Path: "f"}, content)
	assert.Equal(t, code(err), sdk.CodeQuotaExceeded, "%v", err)
	entries, err := os.ReadDir(s.workspace)
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 0))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
