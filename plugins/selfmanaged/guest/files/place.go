package files

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds of Linux on names, in bytes. The path's has room for its final NUL.
const (
	maxName = 255
	maxPath = 4095
)

// place is a path that a caller asked for.
type place struct {
	root string // one of Options.Roots
	name string // below root; "." for root itself
	// field of the request that it came from, for errors.
	field string
}

// place checks a path. "." and ".." are taken out of it as text; links are left
// to resolve.
func (s *service) place(field, asked string) (place, error) {
	wrong := func(format string, args ...any) error {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, format, args...)
	}
	switch {
	case asked == "":
		return place{}, wrong("must not be empty")
	case strings.ContainsRune(asked, 0):
		return place{}, wrong("must not hold a NUL")
	case !utf8.ValidString(asked):
		return place{}, wrong("must be UTF-8")
	case len(asked) > maxPath:
		return place{}, wrong("must have at most %d bytes", maxPath)
	}
	full := asked
	if !path.IsAbs(full) {
		full = s.options.Roots[0] + "/" + full
	}
	full = path.Clean(full)
	if len(full) > maxPath {
		return place{}, wrong("must have at most %d bytes", maxPath)
	}
	for part := range strings.SplitSeq(full, "/") {
		if len(part) > maxName {
			return place{}, wrong("has a name of more than %d bytes", maxName)
		}
	}
	for _, root := range s.options.Roots {
		if name, err := filepath.Rel(root, full); err == nil && filepath.IsLocal(name) {
			return place{root: root, name: name, field: field}, nil
		}
	}
	return place{}, wrong("must be below %s", strings.Join(s.options.Roots, " or "))
}

// String is the absolute path.
func (p place) String() string { return path.Join(p.root, p.name) }

// below is the absolute path of something below the place.
func (p place) below(name string) string { return path.Join(p.root, p.name, name) }

// isRoot reports whether the place is the root itself, which cannot be moved,
// replaced or removed.
func (p place) isRoot() bool { return p.name == "." }

// refuseRoot is the error for a call that changes what only what is below the root
// may suffer.
func (p place) refuseRoot() error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.field, "must be below %s, not that itself", p.root)
}

// locate opens the directory that the place is in and returns the place's name
// there, which is "." for the root itself. With follow, the name is no symbolic
// link.
func (p place) locate(follow bool) (*directory, string, error) {
	var dir *directory
	var base string
	err := asUser(func() error {
		root, err := openRoot(p.root)
		if err != nil {
			return err
		}
		defer root.Close()
		dir, base, err = resolve(root, p.root, p.name, follow)
		return err
	})
	return dir, base, p.explain(err)
}

// parent is locate for what shall be made, moved or removed: not the root, and a
// link at the end is meant itself. Missing directories are made if that is wanted.
func (p place) parent(makeMissing bool) (*directory, string, error) {
	if p.isRoot() {
		return nil, "", p.refuseRoot()
	}
	var dir *directory
	err := asUser(func() error {
		root, err := openRoot(p.root)
		if err != nil {
			return err
		}
		defer root.Close()
		dir, err = p.ensure(root, path.Dir(p.name), makeMissing)
		return err
	})
	return dir, path.Base(p.name), p.explain(err)
}

// ensure opens a directory below the root, and makes what is missing.
func (p place) ensure(root *directory, name string, makeMissing bool) (*directory, error) {
	dir, err := resolveDirectory(root, p.root, name)
	if !makeMissing || !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	above, err := p.ensure(root, path.Dir(name), true)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if err := above.mkdir(path.Base(name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return above.sub(path.Base(name))
}

// openDirectory opens the place itself as a directory.
func (p place) openDirectory() (*directory, error) {
	var dir *directory
	err := asUser(func() error {
		root, err := openRoot(p.root)
		if err != nil {
			return err
		}
		defer root.Close()
		dir, err = resolveDirectory(root, p.root, p.name)
		return err
	})
	return dir, p.explain(err)
}
