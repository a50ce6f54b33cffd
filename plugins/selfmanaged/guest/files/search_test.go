package files_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (s served) search(t *testing.T, req sdk.SearchFilesRequest) (matches []string, truncated bool) {
	t.Helper()
	if req.Path == "" {
		req.Path = "."
	}
	if req.Limit == 0 {
		req.Limit = 100
	}
	truncated, err := s.SearchFiles(t.Context(), req, func(found []sdk.FileMatch) error {
		for _, m := range found {
			matches = append(matches, fmt.Sprintf("%s:%d:%d:%s", strings.TrimPrefix(m.Path, s.workspace+"/"), m.Line, m.Column, m.Text))
		}
		return nil
	})
	assert.NilError(t, err)
	return matches, truncated
}

func TestTextIsFound(t *testing.T) {
	s := serve(t, nil)
	long := strings.Repeat("x", 200<<10)
	for path, text := range map[string]string{
		"a.py": "import os\n\nprint(os.name)\r\nlast os", "b/c.txt": "a.b\nAxB\n", "bin": "os\x00", "empty": "",
		"long": long + "os\nos" + strings.Repeat("é", 2000) + "\n", "latin": "caf\xe9 os\n",
	} {
		assert.NilError(t, s.write(t, path, text))
	}
	for name, test := range map[string]struct {
		req       sdk.SearchFilesRequest
		want      []string
		truncated bool
	}{
		"a regular expression": {sdk.SearchFilesRequest{Pattern: `os\.\w+`}, []string{"a.py:3:7:print(os.name)"}, false},
		"each line once":       {sdk.SearchFilesRequest{Pattern: "[os]+", Path: "a.py"}, []string{"a.py:1:4:import os", "a.py:3:7:print(os.name)", "a.py:4:3:last os"}, false},
		"plain text":           {sdk.SearchFilesRequest{Pattern: "a.b", Literal: true}, []string{"b/c.txt:1:1:a.b"}, false},
		"in any case":          {sdk.SearchFilesRequest{Pattern: "a.b", IgnoreCase: true}, []string{"b/c.txt:1:1:a.b", "b/c.txt:2:1:AxB"}, false},
		"a glob":               {sdk.SearchFilesRequest{Pattern: "os", Glob: "*.py", Limit: 1}, []string{"a.py:1:8:import os"}, true},
		"the end of a line":    {sdk.SearchFilesRequest{Pattern: `\)$`}, []string{"a.py:3:14:print(os.name)"}, false},
		"what is not UTF-8":    {sdk.SearchFilesRequest{Pattern: "os", Glob: "latin"}, []string{"latin:1:6:caf\ufffd os"}, false},
		"a long line is cut":   {sdk.SearchFilesRequest{Pattern: "os", Path: "long"}, []string{"long:2:1:os" + strings.Repeat("é", 511)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			matches, truncated := s.search(t, test.req)
			assert.DeepEqual(t, matches, test.want)
			assert.Equal(t, truncated, test.truncated)
		})
	}
	for _, pattern := range []string{"(", "", strings.Repeat("x", 1001), "x{1001}"} {
		_, err := s.SearchFiles(t.Context(), sdk.SearchFilesRequest{Path: ".", Pattern: pattern, Limit: 1}, nil)
		assert.Check(t, is.Equal(code(err), sdk.CodeInvalidRequest), "%.20s", pattern)
	}
}

func TestASearchEndsWithItsCaller(t *testing.T) {
	s := serve(t, nil)
	assert.NilError(t, s.write(t, "f", strings.Repeat("x\n", 1<<20)))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.SearchFiles(ctx, sdk.SearchFilesRequest{Path: ".", Pattern: "x", Limit: 100_000}, func([]sdk.FileMatch) error {
		cancel()
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestTextIsReplaced(t *testing.T) {
	s := serve(t, nil)
	assert.NilError(t, s.write(t, "a", "one two\none\n"))
	assert.NilError(t, s.write(t, "b", "none"))
	before, err := os.Stat(filepath.Join(s.workspace, "b"))
	assert.NilError(t, err)
	replaced, err := s.ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{Paths: []string{"a", "b"}, Old: "one\n", New: ""})
	assert.NilError(t, err)
	assert.DeepEqual(t, replaced, []sdk.FileReplacement{{Path: filepath.Join(s.workspace, "a"), Count: 1}, {Path: filepath.Join(s.workspace, "b")}})
	text, err := s.read(t, "a")
	assert.NilError(t, err)
	assert.Equal(t, text, "one two\n")
	after, err := os.Stat(filepath.Join(s.workspace, "b"))
	assert.NilError(t, err)
	assert.Check(t, os.SameFile(before, after), "a file without it is left alone")

	_, err = s.ReplaceInFiles(t.Context(), sdk.ReplaceInFilesRequest{Paths: []string{"a", "missing"}, Old: "one", New: "1"})
	assert.Equal(t, code(err), sdk.CodeNotFound)
	assert.ErrorContains(t, err, "missing")
	text, err = s.read(t, "a")
	assert.NilError(t, err)
	assert.Equal(t, text, "1 two\n", "those before it are changed")
}
