package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// Context is the directory that COPY copies from.
type Context struct {
	root   *os.Root
	ignore *patternmatcher.PatternMatcher // nil for nothing
}

// Open opens a context, and reads the Dockerfile, which may be elsewhere. The caller closes it.
func Open(dir, file string) (*Context, []byte, error) {
	text, err := readText(os.Open(file))
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	c := &Context{root: root}
	// The file's own list stands before that of the context, as in Docker.
	ignore, err := readText(os.Open(file + ".dockerignore"))
	if errors.Is(err, fs.ErrNotExist) {
		ignore, err = readText(root.Open(".dockerignore"))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return c, text, nil
	}
	if err == nil {
		c.ignore, err = readIgnore(ignore)
	}
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return c, text, nil
}

// readText reads a small file and closes it.
func readText(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxText {
		return nil, &Error{Reason: fmt.Sprintf("%s is no file of at most %d bytes", quoted(filepath.Base(f.Name())), MaxText)}
	}
	return io.ReadAll(io.LimitReader(f, MaxText))
}

// maxPatterns of a .dockerignore: each is tried with each path.
const maxPatterns = 1000

func readIgnore(text []byte) (*patternmatcher.PatternMatcher, error) {
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		return nil, &Error{Reason: ".dockerignore cannot be read: " + Line(err.Error())}
	}
	if len(patterns) > maxPatterns {
		return nil, &Error{Reason: fmt.Sprintf(".dockerignore has more than %d patterns", maxPatterns)}
	}
	matcher, err := patternmatcher.New(slices.Compact(patterns))
	if err != nil {
		return nil, &Error{Reason: ".dockerignore cannot be read: " + Line(err.Error())}
	}
	return matcher, nil
}

// Close closes the directory.
func (c *Context) Close() error { return c.root.Close() }

// Files are those of the context, without regard to .dockerignore: see Skip.
func (c *Context) Files() Files { return c.root.FS().(Files) }

// Skip reports whether .dockerignore leaves a path out.
func (c *Context) Skip(path string) (bool, error) {
	if c.ignore == nil {
		return false, nil
	}
	left, err := c.ignore.MatchesOrParentMatches(path)
	if err != nil {
		return false, &Error{Reason: ".dockerignore cannot be used: " + Line(err.Error())}
	}
	return left, nil
}
