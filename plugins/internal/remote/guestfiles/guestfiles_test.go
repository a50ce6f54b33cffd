package guestfiles_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// machine is a Store that runs the program on this machine.
type machine struct {
	guestfiles.Store
	t         *testing.T
	workspace string
}

func here(t *testing.T, workspace string) machine {
	t.Helper()
	binaries.Needs(t, "python3", "python3")
	return machine{t: t, workspace: workspace}
}

func (m machine) Do(ctx context.Context, _ string, req guestfiles.Request) (a guestfiles.Answer, err error) {
	if err := req.Check(); err != nil {
		return a, err
	}
	req.Workspace = m.workspace
	text, err := json.Marshal(req)
	assert.NilError(m.t, err)
	cmd := exec.CommandContext(ctx, "python3", "-I", "-c", guestfiles.Program("print(json.dumps(answer(json.load(sys.stdin))))"))
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(text)), os.Stderr
	output, err := cmd.Output()
	assert.NilError(m.t, err)
	assert.NilError(m.t, json.Unmarshal(output, &a))
	return a, a.Refusal()
}

// The contract of sdk.Files is tested by the conformance suites of the providers; this is
// for what they cannot see.
func TestAnOperationWhoseAnswerWasLostCanBeRepeated(t *testing.T) {
	workspace := t.TempDir()
	do := here(t, workspace).Do
	for _, req := range []guestfiles.Request{
		{Op: guestfiles.MkDir, Path: "d"},
		{Op: guestfiles.Chmod, Path: "d", Mode: 0o700},
		{Op: guestfiles.Draft, Path: "f", Draft: ".draft"},
		{Op: guestfiles.Append, Path: "f", Draft: ".draft", Data: []byte("hello ")},
		{Op: guestfiles.Append, Path: "f", Draft: ".draft", Offset: 6, Data: []byte("there")},
		{Op: guestfiles.Commit, Path: "f", Draft: ".draft", Mode: 0o640},
		{Op: guestfiles.Discard, Path: "f", Draft: ".draft"},
	} {
		assert.Assert(t, req.Op.Repeatable())
		for range 2 {
			_, err := do(t.Context(), "", req)
			assert.NilError(t, err, "%s", req.Op)
		}
	}
	got, err := os.ReadFile(filepath.Join(workspace, "f"))
	assert.NilError(t, err)
	assert.Equal(t, string(got), "hello there")
}

func TestAPartOfAFileIsReadIfItIsSmall(t *testing.T) {
	workspace := t.TempDir()
	do := here(t, workspace).Do
	assert.NilError(t, os.WriteFile(filepath.Join(workspace, "f"), []byte("0123456789"), 0o600))
	for name, c := range map[string]struct {
		offset, length int64
		most           int
		want           string
		whole          bool
	}{
		"all":                {0, 0, 10, "0123456789", true},
		"more than is small": {0, 0, 9, "", false},
		"a part":             {2, 3, 3, "234", true},
		"the end":            {-2, 0, 9, "89", true},
		"beyond the end":     {50, 5, 9, "", true},
		"before the start":   {-50, 1, 9, "0", true},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := do(t.Context(), "", guestfiles.Request{Op: guestfiles.Open, Path: "f", Offset: c.offset, Length: c.length, Most: c.most})
			assert.NilError(t, err)
			assert.Equal(t, a.Whole, c.whole)
			assert.Equal(t, string(a.Data), c.want)
			assert.Equal(t, a.File.Info().Size, int64(10))
		})
	}
}

func TestWhatAnExecutionMayHaveMadeIsRegularFiles(t *testing.T) {
	workspace := t.TempDir()
	assert.NilError(t, os.MkdirAll(filepath.Join(workspace, "artifacts", "a"), 0o700))
	for _, name := range []string{"artifacts/a/x", "artifacts/y", "other"} {
		assert.NilError(t, os.WriteFile(filepath.Join(workspace, name), []byte(name), 0o600))
	}
	assert.NilError(t, os.Symlink("../other", filepath.Join(workspace, "artifacts", "link")))
	a, err := here(t, workspace).Do(t.Context(), "", guestfiles.Request{Op: guestfiles.Marks, Path: ".", Names: []string{"other", "artifacts/link", "artifacts", "none", "../x"}})
	assert.NilError(t, err)
	var found []string
	for _, f := range a.Files {
		found = append(found, f.Below)
	}
	slices.Sort(found)
	assert.DeepEqual(t, found, []string{"artifacts/a/x", "artifacts/y"})
	assert.DeepEqual(t, a.Sizes, []int64{5, -1, -1, -1, -1})
}

func TestTheDirectoryOfArtifactsIsMadeOnDemandWhereNothingHasItsName(t *testing.T) {
	workspace := t.TempDir()
	path := filepath.Join(workspace, "artifacts")
	look := func(makes bool) os.FileMode {
		t.Helper()
		_, err := here(t, workspace).Do(t.Context(), "", guestfiles.Request{Op: guestfiles.Marks, Path: ".", Make: makes})
		assert.NilError(t, err)
		info, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) {
			return 0
		}
		assert.NilError(t, err)
		return info.Mode().Type() | 1
	}
	assert.Equal(t, look(false), os.FileMode(0), "nobody asked")
	assert.Equal(t, look(true), os.ModeDir|1)
	assert.Equal(t, look(true), os.ModeDir|1, "it is there")
	assert.NilError(t, os.Remove(path))
	assert.NilError(t, os.WriteFile(path, nil, 0o600))
	assert.Equal(t, look(true), os.FileMode(1), "a file stays")
	assert.NilError(t, os.Remove(path))
	assert.NilError(t, os.Symlink("elsewhere", path))
	assert.Equal(t, look(true), os.ModeSymlink|1, "a link stays")
	_, err := os.Lstat(filepath.Join(workspace, "elsewhere"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestListsAreCutAtTheirLimitAndSaySo(t *testing.T) {
	workspace := t.TempDir()
	for _, name := range []string{"a/x.go", "a/y.txt", "b.go"} {
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(workspace, name)), 0o700))
		assert.NilError(t, os.WriteFile(filepath.Join(workspace, name), nil, 0o600))
	}
	for name, c := range map[string]struct {
		glob        string
		limit, most int
		want        string
		truncated   bool
	}{
		"all":                {"", 4, 100, "a a/x.go a/y.txt b.go", false},
		"fewer":              {"", 3, 100, "a a/x.go a/y.txt", true},
		"those of a pattern": {"**/*.go", 2, 100, "a/x.go b.go", false},
		"fewer of a pattern": {"**/*.go", 1, 100, "a/x.go", true},
		"none of a pattern that has many combinations": {strings.Repeat("{"+strings.Repeat("a,", 59)+"a}", 8) + "c", 9, 100, "", false},
		"what is looked at has its end":                {"**/*.go", 9, 2, "a/x.go", true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			truncated, err := guestfiles.NewCalls(here(t, workspace), guestfiles.Options{MostListed: c.most}).ListFiles(t.Context(), sdk.ListFilesRequest{Path: ".", Depth: 9, Glob: c.glob, Limit: c.limit}, func(found []sdk.FileInfo) error {
				for _, f := range found {
					below, err := filepath.Rel(workspace, f.Path)
					assert.NilError(t, err)
					got = append(got, below)
				}
				return nil
			})
			assert.NilError(t, err)
			assert.Equal(t, strings.Join(got, " "), c.want)
			assert.Equal(t, truncated, c.truncated)
		})
	}
}

func TestPathsThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		req   guestfiles.Request
		field string
	}{
		"none":           {guestfiles.Request{Op: guestfiles.Stat}, "path"},
		"a NUL":          {guestfiles.Request{Op: guestfiles.Stat, Path: "a\x00b"}, "path"},
		"too long":       {guestfiles.Request{Op: guestfiles.Stat, Path: strings.Repeat("a/", 2048)}, "path"},
		"no destination": {guestfiles.Request{Op: guestfiles.Copy, Path: "a"}, "to"},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := errors.AsType[*sdk.Error](c.req.Check())
			assert.Assert(t, ok)
			assert.Equal(t, e.Code, sdk.CodeInvalidRequest)
			assert.Equal(t, e.Field, c.field)
		})
	}
	assert.NilError(t, guestfiles.Request{Op: guestfiles.Stat, Path: "a"}.Check())
}
