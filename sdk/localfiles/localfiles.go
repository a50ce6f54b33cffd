package localfiles

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds on what a call may take. None is meant to be met in ordinary use.
const (
	maxDirectory = 100_000 // entries of one directory
	maxDepth     = 256     // directories in one another
	anyDepth     = maxDepth + 1
	maxResults   = 100_000 // entries or matches of one call
	maxLinks     = 40      // symbolic links that a path leads through
	copyBytes    = 128 << 10

	// Of Linux on names, in bytes. That of paths has room for the final NUL.
	maxName = 255
	maxPath = 4095
)

// Options of Files.
type Options struct {
	// Directory returns the directory of an instance on this machine, by an absolute
	// path. The place /workspace is the directory workspace in it. For an unknown
	// instance it returns an *sdk.Error with CodeNotFound.
	Directory func(instanceID string) (string, error)
	// Places are where code can write, as it sees them: absolute paths of one name
	// each. Relative paths begin at the first. /workspace and /tmp unless given.
	Places []string
}

// Files implements sdk.Files, sdk.FileSearcher, sdk.FileWatcher, sdk.FileModeSetter and
// sdk.Archiver.
type Files struct{ options Options }

var (
	_ sdk.Files        = (*Files)(nil)
	_ sdk.FileSearcher = (*Files)(nil)
	_ sdk.Archiver     = (*Files)(nil)
)

// New returns the files of the instances whose directories options name. It touches
// nothing.
func New(options Options) *Files {
	if len(options.Places) == 0 {
		options.Places = []string{"/workspace", "/tmp"}
	}
	return &Files{options}
}

// place is a path that a caller asked for, in an open directory that nothing leads
// out of.
type place struct {
	root *os.Root
	top  string // what code calls root, such as /workspace
	name string // below root; "." for root itself
	// field of the request that it came from, for errors.
	field string
}

// split checks a path and finds which of the places it is in. "." and ".." are taken
// out of it as text; links are left to resolve.
func (f *Files) split(field, asked string) (top, name string, err error) {
	wrong := func(format string, args ...any) (string, string, error) {
		return "", "", sdk.FieldErrorf(sdk.CodeInvalidRequest, field, format, args...)
	}
	switch {
	case asked == "":
		return wrong("must not be empty")
	case strings.ContainsRune(asked, 0):
		return wrong("must not hold a NUL")
	case !utf8.ValidString(asked):
		return wrong("must be UTF-8")
	case len(asked) > maxPath:
		return wrong("must have at most %d bytes", maxPath)
	}
	full := asked
	if !path.IsAbs(full) {
		full = f.options.Places[0] + "/" + full
	}
	full = path.Clean(full)
	if len(full) > maxPath {
		return wrong("must have at most %d bytes", maxPath)
	}
	for part := range strings.SplitSeq(full, "/") {
		if len(part) > maxName {
			return wrong("has a name of more than %d bytes", maxName)
		}
	}
	for _, top := range f.options.Places {
		if name, err := filepath.Rel(top, full); err == nil && filepath.IsLocal(name) {
			return top, name, nil
		}
	}
	return wrong("must be below %s", strings.Join(f.options.Places, " or "))
}

// at opens the place of a path, which the caller closes. Symbolic links on the way are
// resolved; with follow, one at its end too.
func (f *Files) at(instanceID, field, asked string, follow bool) (place, error) {
	top, name, err := f.split(field, asked)
	if err != nil {
		return place{}, err
	}
	directory, err := f.options.Directory(instanceID)
	if err != nil {
		return place{}, err
	}
	at := place{top: top, name: name, field: field}
	if at.root, err = os.OpenRoot(filepath.Join(directory, filepath.FromSlash(top))); err != nil {
		return place{}, at.explain(err)
	}
	if at.name, err = at.resolve(name, follow); err != nil {
		defer at.root.Close()
		return place{}, place{top: top, name: name, field: field}.explain(err)
	}
	return at, nil
}

// change is at for what shall be made, moved or removed: not the place itself, and a
// link at the end is meant itself.
func (f *Files) change(instanceID, field, asked string) (place, error) {
	at, err := f.at(instanceID, field, asked, false)
	if err == nil && at.name == "." {
		at.close()
		return place{}, at.refuseTop()
	}
	return at, err
}

func (at place) refuseTop() error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, at.field, "must be below %s, not that itself", at.top)
}

// using calls do with a place and words its errors for the agent.
func using[T any](at place, err error, do func(at place) (T, error)) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	defer at.close()
	result, err := do(at)
	if err != nil {
		return none, at.explain(err)
	}
	return result, nil
}

func (at place) close() { _ = at.root.Close() }

// String is the absolute path.
func (at place) String() string { return path.Join(at.top, at.name) }

// below is a place below this one.
func (at place) below(name string) place {
	at.name = path.Join(at.name, name)
	return at
}

// beside is a place in the same directory.
func (at place) beside(base string) place {
	at.name = path.Join(path.Dir(at.name), base)
	return at
}
