package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

// largestFile is what one file of the repository may have: everybody who clones it
// gets each version of each file, for ever.
const largestFile = 1 << 20

// executables begin so: ELF, Mach-O of both orders and widths, a fat Mach-O, PE.
var executables = []string{"\x7fELF", "\xfe\xed\xfa\xce", "\xfe\xed\xfa\xcf", "\xce\xfa\xed\xfe", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "MZ"}

// unfit says why a file does not belong in the repository, or nothing. Below testdata
// there may be small files that are no text, but no programs.
func unfit(path string, content []byte) string {
	if len(content) > largestFile {
		return fmt.Sprintf("has %d bytes, more than %d", len(content), largestFile)
	}
	text := utf8.Valid(content) && !bytes.Contains(content, []byte{0})
	for _, magic := range executables {
		if bytes.HasPrefix(content, []byte(magic)) && !text {
			return "is an executable"
		}
	}
	if !text && !strings.Contains("/"+filepath.ToSlash(path), "/testdata/") {
		return "is no text"
	}
	return ""
}

func TestWhatDoesNotBelongInTheRepository(t *testing.T) {
	for name, c := range map[string]struct {
		path, content, want string
	}{
		"text":                           {"a.go", "package a", ""},
		"a file of a megabyte":           {"a.json", strings.Repeat("x", largestFile), ""},
		"a larger one":                   {"testdata/a.json", strings.Repeat("x", largestFile+1), "has 1048577 bytes, more than 1048576"},
		"a program":                      {"examples/a/a", "\x7fELF\x02\x01\x01\x00", "is an executable"},
		"a program of a test":            {"a/testdata/a", "\x7fELF\x02\x01\x01\x00", "is an executable"},
		"a program of another system":    {"a", "\xcf\xfa\xed\xfe\x07\x00", "is an executable"},
		"text that begins like one":      {"a.md", "MZ is a magic number", ""},
		"an archive":                     {"a.tar.gz", "\x1f\x8b\x08\x00\x00", "is no text"},
		"bytes for a test":               {"config/testdata/not_utf8", "\xff\xfe", ""},
		"bytes in a name like testdata":  {"config/mytestdata/not_utf8", "\xff\xfe", "is no text"},
		"text in another alphabet":       {"a.txt", "мир 世界", ""},
		"a NUL in something like a text": {"a.txt", "a\x00b", "is no text"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, unfit(c.path, []byte(c.content)), c.want) })
	}
}

func TestTheRepositoryHoldsTextOfModestSize(t *testing.T) {
	if _, err := os.Stat("../.git"); err != nil {
		t.Skip("this is no clone: git cannot say which files belong to it")
	}
	command := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	command.Dir = ".."
	list, err := command.Output()
	assert.NilError(t, err)
	paths := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	assert.Assert(t, len(paths) > 500, "git lists the files: %d", len(paths))
	for _, path := range paths {
		content, err := os.ReadFile(filepath.Join("..", path))
		if os.IsNotExist(err) {
			continue // removed here, and not committed yet
		}
		assert.Check(t, err)
		assert.Check(t, unfit(path, content) == "", "%s %s", path, unfit(path, content))
	}
}
