package guestfiles_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
)

// resident is a Store like machine, whose program stays for further requests. It makes
// answers short if most is set, and counts them.
type resident struct {
	guestfiles.Store
	t         *testing.T
	workspace string
	ask       *json.Encoder
	answers   *json.Decoder

	most         int
	calls, bytes int
}

func stays(t *testing.T, workspace string) *resident {
	t.Helper()
	binaries.Needs(t, "python3", "python3")
	cmd := exec.CommandContext(t.Context(), "python3", "-I", "-c",
		guestfiles.Program("for line in sys.stdin:\n    print(json.dumps(answer(json.loads(line))), flush=True)"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		assert.Check(t, in.Close())
		_ = cmd.Wait() // its context may have ended it
	})
	return &resident{t: t, workspace: workspace, ask: json.NewEncoder(in), answers: json.NewDecoder(out)}
}

func (r *resident) Do(_ context.Context, _ string, req guestfiles.Request) (answer guestfiles.Answer, err error) {
	if err := req.Check(); err != nil {
		return answer, err
	}
	if r.most > 0 {
		req.Most = r.most
	}
	req.Workspace = r.workspace
	assert.NilError(r.t, r.ask.Encode(req))
	assert.NilError(r.t, r.answers.Decode(&answer))
	r.calls, r.bytes = r.calls+1, r.bytes+len(answer.Data)
	return answer, answer.Refusal()
}

func (r *resident) all() guestfiles.Calls { return guestfiles.NewCalls(r, guestfiles.Options{}) }

// searcher is what a search is made with.
type searcher interface {
	SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error)
}

// search shows what a search found, and how it ended.
func search(t *testing.T, s searcher, workspace string, req sdk.SearchFilesRequest) string {
	t.Helper()
	var told strings.Builder
	truncated, err := s.SearchFiles(t.Context(), req, func(found []sdk.FileMatch) error {
		for _, m := range found {
			fmt.Fprintf(&told, "%s:%d:%d:%q\n", strings.TrimPrefix(m.Path, workspace), m.Line, m.Column, m.Text)
		}
		return nil
	})
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return fmt.Sprint(told.String(), e.Code, " ", e.Field)
	}
	assert.NilError(t, err)
	return fmt.Sprint(told.String(), truncated)
}

// tree makes a directory with all kinds of files, and returns the calls of the kit and the
// files of this machine, which the guest of a sandbox stands on.
func tree(t *testing.T) (workspace string, kit *resident, guest *localfiles.Files) {
	t.Helper()
	root := t.TempDir()
	workspace = filepath.Join(root, "workspace")
	long := strings.Repeat("x", 200<<10)
	for name, text := range map[string]string{
		"a.py": "import os\n\nprint(os.name)\r\nlast os", "a/c.txt": "a.b\nAxB\n", "a/e/os.py": "os\n", "a-b.py": "os\nos\nos\n",
		"bin": "os\x00", "late": strings.Repeat("os"+long[:1000]+"\n", 9) + "\x00os\n", "empty": "", "long": long + "os\nos" + strings.Repeat("é", 2000) + "\n",
		"latin": "caf\xe9 os\n", "z\xff\xfe": "os\n", "é": "os\n", "\U0001F600": "os", "\uE000": "os\n", "edge": strings.Repeat("y", 64<<10) + "\nos\n",
		"over": strings.Repeat("y", 64<<10-1) + "os\nos\n", "fold": "\u212aos\nKOS\nſ\n\u212a", "returns": "os\r\r\n\ros\n",
		".draft-notes": "os\n", "not": "os\n", "locked/f": "os\n", "d/e/f/g": "os\n", "lines": strings.Repeat("\n", 500) + "os",
	} {
		file := filepath.Join(workspace, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	assert.NilError(t, os.Symlink("a.py", filepath.Join(workspace, "link")))
	assert.NilError(t, os.Symlink("a", filepath.Join(workspace, "linked")))
	assert.NilError(t, os.Symlink("nowhere", filepath.Join(workspace, "broken")))
	assert.NilError(t, unix.Mkfifo(filepath.Join(workspace, "pipe"), 0o600))
	kit = stays(t, workspace)
	return workspace, kit, localfiles.New(localfiles.Options{
		Directory: func(string) (string, error) { return root, nil }, Places: []string{"/workspace"},
	})
}

// The two are one contract: what a search finds does not tell whose sandbox it was.
func TestASearchFindsWhatTheGuestFinds(t *testing.T) {
	workspace, kit, guest := tree(t)
	if os.Geteuid() != 0 { // who may do everything
		for _, name := range []string{"not", "locked"} {
			assert.NilError(t, os.Chmod(filepath.Join(workspace, name), 0))
			t.Cleanup(func() { assert.Check(t, os.Chmod(filepath.Join(workspace, name), fs.FileMode(0o700))) })
		}
	}
	for _, req := range []sdk.SearchFilesRequest{
		{Pattern: "os"},
		{Pattern: `os\.\w+`},
		{Pattern: "[os]+", Path: "a.py"},
		{Pattern: "a.b", Literal: true},
		{Pattern: "a.b", IgnoreCase: true},
		{Pattern: "kos", IgnoreCase: true},
		{Pattern: "s", Literal: true, IgnoreCase: true},
		{Pattern: "\uFFFD"},
		{Pattern: `^$`},
		{Pattern: `\r`},
		{Pattern: "os$|é"},
		{Pattern: "x", Glob: "long"},
		{Pattern: ".", Glob: "**/{os,c}.*"},
		{Pattern: "os", Glob: "*.py"},
		{Pattern: "os", Glob: "./*.py"},
		{Pattern: "os", Glob: "a/**"},
		{Pattern: "os", Path: "a.py", Glob: "*.txt"},
		{Pattern: "os", Path: "a.py", Glob: "a.*"},
		{Pattern: "os", Path: "pipe", Glob: "*.txt"},
		{Pattern: "os", Path: "pipe"},
		{Pattern: "os", Path: "bin"},
		{Pattern: "os", Path: "link"},
		{Pattern: "os", Path: "linked"},
		{Pattern: "os", Path: "broken"},
		{Pattern: "os", Path: "absent"},
		{Pattern: "os", Path: "a.py/b"},
		{Pattern: "os", Path: "/workspace/a/../a"},
		{Pattern: "os", Limit: 1},
		{Pattern: "os", Limit: 3, Glob: "a-b.py"},
		{Pattern: "os", Limit: 2, Glob: "a-b.py"},
		{Pattern: "("},
		{Pattern: ""},
		{Pattern: "x{1001}"},
		{Pattern: "x", Glob: "{"},
		{Pattern: strings.Repeat("x", 1001)},
	} {
		if req.Path == "" {
			req.Path = "."
		}
		if req.Limit == 0 {
			req.Limit = 100_000
		}
		want := search(t, guest, "/workspace", req)
		req.Path = strings.Replace(req.Path, "/workspace", workspace, 1)
		for _, most := range []int{0, 1000, 1} {
			if kit.most = most; most == 1 && !strings.HasPrefix(req.Pattern, "os") {
				continue // there is a call for each line
			}
			assert.Check(t, is.Equal(search(t, kit.all(), workspace, req), want), "%+v in answers of %d bytes", req, most)
		}
	}
}

// What a search costs is bounded by what may match, and not by what is there.
func TestASearchFetchesLittle(t *testing.T) {
	workspace := t.TempDir()
	for i := range 300 {
		text := strings.Repeat("func f() { return nothing }\n", 400)
		if i%100 == 0 {
			text += "the needle\n"
		}
		assert.NilError(t, os.WriteFile(filepath.Join(workspace, fmt.Sprintf("f%03d.go", i)), []byte(text), 0o600))
	}
	kit := stays(t, workspace)
	got := search(t, kit.all(), workspace+"/", sdk.SearchFilesRequest{Path: ".", Pattern: `the n\w+`, Limit: 100})
	assert.Equal(t, got, "f000.go:401:1:\"the needle\"\nf100.go:401:1:\"the needle\"\nf200.go:401:1:\"the needle\"\nfalse")
	assert.Equal(t, kit.calls, 1)
	assert.Assert(t, kit.bytes < 1000, "%d bytes", kit.bytes)

	kit.calls, kit.bytes = 0, 0
	assert.Equal(t, search(t, kit.all(), workspace+"/", sdk.SearchFilesRequest{Path: ".", Pattern: `\d`, Glob: "*.py", Limit: 100}), "false")
	assert.Equal(t, kit.calls, 1)
	assert.Assert(t, kit.bytes < 1000, "%d bytes for no file that the glob selects", kit.bytes)
}

func TestASearchEndsWithItsCaller(t *testing.T) {
	workspace := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(workspace, "f"), bytes.Repeat([]byte("x\n"), 1<<16), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	kit := stays(t, workspace)
	_, err := kit.all().SearchFiles(ctx, sdk.SearchFilesRequest{Path: ".", Pattern: "x", Limit: 100_000}, func([]sdk.FileMatch) error {
		cancel()
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, kit.calls, 1)
}

// liar is a Store whose sandbox tells what it likes.
type liar struct {
	guestfiles.Store
	answer guestfiles.Answer
}

func (l liar) Do(context.Context, string, guestfiles.Request) (guestfiles.Answer, error) {
	return l.answer, nil
}

func TestWhatASandboxTellsOfItsFilesIsNotTrusted(t *testing.T) {
	packed := func(text string) []byte {
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		_, err := w.Write([]byte(text))
		assert.NilError(t, err)
		assert.NilError(t, w.Close())
		return b.Bytes()
	}
	line := "\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01x"
	for name, data := range map[string][]byte{
		"nothing": nil, "no zlib": []byte("x"), "half of it": packed("x")[:9], "another kind": packed("\x02\x00\x00\x00\x01x"),
		"a path that leads out": packed("\x00\x00\x00\x00\x04../x" + line), "a line that is cut": packed(line[:13]), "half a number": packed(line[:5]), "line 0": packed(strings.Replace(line, "\x01\x00\x00\x00\x01", "\x00\x00\x00\x00\x01", 1)),
		"a long path": packed("\x00\x00\x00\x20\x00" + strings.Repeat("x", 0x2000)), "a negative number": packed("\x01\xff" + line[2:]),
		"more than was asked for": packed(strings.Repeat(line, 1<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			calls := guestfiles.NewCalls(liar{answer: guestfiles.Answer{Data: data}}, guestfiles.Options{})
			_, err := calls.SearchFiles(t.Context(), sdk.SearchFilesRequest{Path: ".", Pattern: "absent", Limit: 1}, nil)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
		})
	}
	for name, answer := range map[string]guestfiles.Answer{"none": {}, "too many": {Files: make([]guestfiles.File, 2)}} {
		t.Run("replaced in "+name, func(t *testing.T) {
			_, err := guestfiles.NewCalls(liar{answer: answer}, guestfiles.Options{}).ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{Paths: []string{"a"}, Old: "x"})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
		})
	}
}

// replacer is what texts are replaced with.
type replacer interface {
	ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) ([]sdk.FileReplacement, error)
}

// replaced shows what a replacement came to, and what is in the files then.
func replaced(t *testing.T, r replacer, workspace string, req sdk.ReplaceInFilesRequest) string {
	t.Helper()
	got, err := r.ReplaceInFiles(t.Context(), req)
	var told strings.Builder
	for _, f := range got {
		fmt.Fprintf(&told, "%s %d\n", strings.TrimPrefix(f.Path, workspace), f.Count)
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		fmt.Fprintf(&told, "%s %s", e.Code, e.Field)
		for _, name := range req.Paths {
			if strings.Contains(e.Error(), workspace+"/"+name+": ") {
				fmt.Fprintf(&told, " of %s", name)
			}
		}
	} else {
		assert.NilError(t, err)
	}
	return told.String()
}

func TestTextIsReplacedAsTheGuestDoesIt(t *testing.T) {
	piece := strings.Repeat("ab", 1<<19) // one of the program's
	for name, c := range map[string]sdk.ReplaceInFilesRequest{
		"some":                  {Paths: []string{"a.py", "a/c.txt", "latin"}, Old: "os", New: "so"},
		"nothing":               {Paths: []string{"a.py"}, Old: "absent"},
		"taken out":             {Paths: []string{"lines"}, Old: "\n"},
		"overlapping":           {Paths: []string{"long"}, Old: "xxx", New: "xx"},
		"over two pieces":       {Paths: []string{"piece"}, Old: "ba", New: "<>"},
		"a long text":           {Paths: []string{"piece"}, Old: piece[1:], New: "?"},
		"lines":                 {Paths: []string{"a.py"}, Old: "os\n\nprint", New: "\n"},
		"one that is not there": {Paths: []string{"a.py", "absent", "latin"}, Old: "os", New: "1"},
		"no directory for it":   {Paths: []string{"nowhere/x"}, Old: "os"},
		"below a file":          {Paths: []string{"a.py/x"}, Old: "os"},
		"a link":                {Paths: []string{"link"}, Old: "os"},
		"a pipe":                {Paths: []string{"pipe"}, Old: "os"},
		"a directory":           {Paths: []string{"a"}, Old: "os"},
		"an empty file":         {Paths: []string{"empty"}, Old: "os"},
		"no text":               {Paths: []string{"a.py"}},
		"no path":               {Old: "x"},
		"an empty path":         {Paths: []string{"a.py", ""}, Old: "os"},
		"a NUL":                 {Paths: []string{"a.py", "a\x00"}, Old: "os"},
		"too long a text":       {Paths: []string{"a.py"}, Old: strings.Repeat("x", 1<<20+1)},
		"too many files":        {Paths: make([]string, 1001), Old: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			workspace, kit, guest := tree(t)
			file := filepath.Join(workspace, "piece")
			states := make([]string, 2)
			for i, r := range []replacer{guest, kit.all()} {
				if i == 1 {
					workspace, kit, _ = tree(t)
					r, file = kit.all(), filepath.Join(workspace, "piece")
				}
				assert.NilError(t, os.WriteFile(file, []byte(piece+piece+piece[:7]), 0o600))
				assert.NilError(t, os.Chmod(filepath.Join(workspace, "a.py"), 0o751))
				prefix := workspace
				if i == 0 {
					prefix = "/workspace"
				}
				states[i] = replaced(t, r, prefix, c) + "\n" + state(t, workspace)
			}
			assert.Equal(t, states[1], states[0])
		})
	}
}

// state is what files are in a directory, and what is in them.
func state(t *testing.T, root string) string {
	t.Helper()
	var told strings.Builder
	assert.NilError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		assert.NilError(t, err)
		text, err := os.ReadFile(name)
		fmt.Fprintf(&told, "%q %s %d %x\n", strings.TrimPrefix(name, root), info.Mode(), len(text), sha256.Sum256(text))
		return err
	}))
	return told.String()
}

func TestAFileWithoutTheTextIsNotTouched(t *testing.T) {
	workspace, kit, _ := tree(t)
	before, err := os.Stat(filepath.Join(workspace, "a.py"))
	assert.NilError(t, err)
	_, err = kit.all().ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{Paths: []string{"a.py"}, Old: "absent"})
	assert.NilError(t, err)
	after, err := os.Stat(filepath.Join(workspace, "a.py"))
	assert.NilError(t, err)
	assert.Assert(t, os.SameFile(before, after))
	assert.Equal(t, before.ModTime(), after.ModTime())
}
