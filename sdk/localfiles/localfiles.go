// Package localfiles keeps the contract of sdk.Files, sdk.FileSearcher,
// sdk.FileWatcher, sdk.FileModeSetter and sdk.Archiver for instances whose files are
// directories of this machine. A provider embeds Files, and has the five capabilities:
//
//	type Provider struct {
//		*localfiles.Files
//		…
//	}
//
//	p.Files = localfiles.New(localfiles.Options{Directory: p.directory})
//
// Code in the instance may be hostile, and change names and links at any moment. Every
// path is resolved below the place that it is in, name by name from open directories
// (see resolve), so that nothing leads out of there. Nothing waits for the other end of a
// pipe. Lists, searches, copies and archives end with their context, and are bounded.
//
// Everything is done with the rights of the plugin, unless Options.As takes those of the
// user that code runs as.
//
// Nothing is started or kept before the first call, and buffers are small: the guest of a
// sandbox uses this package too, and there is one in every sandbox.
package localfiles

import (
	"errors"
	"io/fs"
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
	maxLinks     = 40      // symbolic links that a path leads through, as in Linux

	// Of Linux on names, in bytes. That of paths has room for the final NUL.
	maxName = 255
	maxPath = 4095
)

const (
	// copyBytes is the buffer for copies inside an instance.
	copyBytes = 128 << 10
	// chunkBytes is what a message of the protocol carries: filechunk.Size. One system
	// call writes it, and one gives it.
	chunkBytes = 1<<20 - 128
	// listBatch is how many entries or matches are passed on at once.
	listBatch = 200
)

// Options of Files.
type Options struct {
	// Directory returns the directory of an instance on this machine, by an absolute
	// path. The place /workspace is the directory workspace in it. For an unknown
	// instance it returns an *sdk.Error with CodeNotFound.
	Directory func(instanceID string) (string, error)
	// Places are where code can write, as it sees them: absolute paths. Relative paths
	// begin at the first. /workspace and /tmp unless given.
	Places []string
	// PlacesOf, if not nil, returns the places of an instance that has others; nil for
	// Places.
	PlacesOf func(instanceID string) []string
	// As calls its argument with the rights of the user that code runs as; nil leaves
	// those of the plugin. All that names a file is called so, in pieces that wait for
	// no other goroutine.
	As func(do func() error) error
	// Room returns an error when there is no room for more, which is asked now and then
	// while something is written. Nil stands for room as long as the disk has some.
	Room func() error
	// Watchers is how many calls of WatchFiles there may be at once; 0 for any number.
	Watchers int
}

// Files implements sdk.Files, sdk.FileSearcher, sdk.FileWatcher, sdk.FileModeSetter and
// sdk.Archiver.
type Files struct {
	options  Options
	watchers chan struct{} // holds one for each WatchFiles; nil if they are not counted
}

var (
	_ sdk.Files          = (*Files)(nil)
	_ sdk.FileSearcher   = (*Files)(nil)
	_ sdk.FileWatcher    = (*Files)(nil)
	_ sdk.FileModeSetter = (*Files)(nil)
	_ sdk.Archiver       = (*Files)(nil)
)

// New returns the files of the instances whose directories options name. It touches
// nothing.
func New(options Options) *Files {
	f := &Files{options: options}
	if len(f.options.Places) == 0 {
		f.options.Places = []string{"/workspace", "/tmp"}
	}
	if f.options.As == nil {
		f.options.As = func(do func() error) error { return do() }
	}
	if f.options.Room == nil {
		f.options.Room = func() error { return nil }
	}
	if f.options.Watchers > 0 {
		f.watchers = make(chan struct{}, f.options.Watchers)
	}
	return f
}

// place is a path that a caller asked for.
type place struct {
	files *Files
	path  string // of top on this machine
	top   string // what code calls that, such as /workspace
	name  string // below top; "." for top itself
	// field of the request that it came from, for errors.
	field string
	// instance that it is of.
	instance string
}

// place checks a path, and finds where it leads on this machine.
func (f *Files) place(instanceID, field, asked string) (place, error) {
	top, name, err := f.split(instanceID, field, asked)
	if err != nil {
		return place{}, err
	}
	directory, err := f.options.Directory(instanceID)
	if err != nil {
		return place{}, err
	}
	return place{files: f, path: filepath.Join(directory, top), top: top, name: name, field: field, instance: instanceID}, nil
}

// split checks a path, and finds which of the places it is in. "." and ".." are taken out
// of it as text; links are left to resolve.
func (f *Files) split(instanceID, field, asked string) (top, name string, err error) {
	places := f.options.Places
	if f.options.PlacesOf != nil {
		if own := f.options.PlacesOf(instanceID); own != nil {
			places = own
		}
	}
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
		full = places[0] + "/" + full
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
	for _, top := range places {
		if name, err := filepath.Rel(top, full); err == nil && filepath.IsLocal(name) {
			return top, name, nil
		}
	}
	return wrong("must be below %s", strings.Join(places, " or "))
}

// String is the absolute path, as code sees it.
func (at place) String() string { return path.Join(at.top, at.name) }

// below is a place below this one.
func (at place) below(name string) place {
	at.name = path.Join(at.name, name)
	return at
}

// refuseTop is the error for a call that changes what only what is below a place of
// Options may suffer.
func (at place) refuseTop() error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, at.field, "must be below %s, not that itself", at.top)
}

// as calls do with the rights that code has.
func (at place) as(do func() error) error { return at.files.options.As(do) }

// rightly is as for what has a result.
func rightly[T any](at place, do func() (T, error)) (result T, err error) {
	err = at.as(func() (err error) {
		result, err = do()
		return err
	})
	return result, err
}

// from calls do with the open directory of the top, and the rights that code has. It
// returns the directory that do opens.
func (at place) from(do func(top *directory) (*directory, error)) (*directory, error) {
	dir, err := rightly(at, func() (*directory, error) {
		top, err := openRoot(at.path)
		if err != nil {
			return nil, err
		}
		defer top.close()
		return do(top)
	})
	return dir, at.explain(err)
}

// locate opens the directory that the place is in and returns the place's name there,
// which is "." for the top itself. With follow, the name is no symbolic link.
func (at place) locate(follow bool) (dir *directory, base string, err error) {
	dir, err = at.from(func(top *directory) (dir *directory, err error) {
		dir, base, err = resolve(top, at.top, at.name, follow)
		return dir, err
	})
	return dir, base, err
}

// parent is locate for what shall be made, moved or removed: not the top, and a link at
// the end is meant itself. Missing directories are made if that is wanted.
func (at place) parent(makeMissing bool) (*directory, string, error) {
	if at.name == "." {
		return nil, "", at.refuseTop()
	}
	dir, err := at.from(func(top *directory) (*directory, error) { return at.ensure(top, path.Dir(at.name), makeMissing) })
	return dir, path.Base(at.name), err
}

// ensure opens a directory below the top, and makes what is missing.
func (at place) ensure(top *directory, name string, makeMissing bool) (*directory, error) {
	dir, err := resolveDirectory(top, at.top, name)
	if !makeMissing || !errors.Is(err, fs.ErrNotExist) || name == "." {
		return dir, err
	}
	above, err := at.ensure(top, path.Dir(name), true)
	if err != nil {
		return nil, err
	}
	defer above.close()
	if err := above.mkdir(path.Base(name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return above.sub(path.Base(name))
}

// open opens the place itself as a directory.
func (at place) open() (*directory, error) {
	return at.from(func(top *directory) (*directory, error) { return resolveDirectory(top, at.top, at.name) })
}

// sub opens a directory below an open one, by a path that holds no links.
func (at place) sub(dir *directory, name string) (*directory, error) {
	return rightly(at, func() (*directory, error) { return openBelow(dir, name) })
}
