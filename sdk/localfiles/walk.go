package localfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"syscall"
)

// walker goes through what is below a directory, in the order of paths, a directory
// before what is in it. It follows no symbolic link and does not see drafts.
type walker struct {
	ctx   context.Context //nolint:containedctx // it lives as long as one call
	at    place
	depth int
	// visit is called for each entry, by its name relative to where the walk began.
	// It may return fs.SkipDir for a directory, fs.SkipAll to end the walk.
	visit func(name string, info fs.FileInfo) error
	// complete makes it an error to leave something out.
	complete bool
	// skipped tells that something was left out: a directory that may not be read,
	// one that is too large, or too deep a nest.
	skipped bool
}

var (
	errTooDeep        = fmt.Errorf("there are more than %d directories in one another", maxDepth)
	errTooManyWatches = errors.New("there are too many directories to watch")
	errTooLarge       = fmt.Errorf("a directory has more than %d entries", maxDirectory)
)

// walk visits what is in the directory at.
func (w *walker) walk() error {
	info, err := w.at.root.Stat(w.at.name)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = w.below(".", 1)
	}
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

func (w *walker) below(at string, level int) error {
	names, err := w.names(at)
	if errors.Is(err, errTooLarge) && !w.complete {
		w.skipped, err = true, nil
	}
	if err != nil {
		return err
	}
	for _, base := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		name := path.Join(at, base)
		info, err := w.at.root.Lstat(path.Join(w.at.name, name))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue // it was removed meanwhile
		case err != nil:
			return err
		}
		if err := w.entry(name, info, level); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(name string, info fs.FileInfo, level int) error {
	err := w.visit(name, info)
	switch {
	case errors.Is(err, fs.SkipDir):
		return nil
	case err != nil, !info.IsDir(), level == w.depth:
		return err
	case level == maxDepth:
		err = errTooDeep
	default:
		err = w.below(name, level+1)
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
	}
	// The entry itself was visited; what is in it cannot be.
	if w.complete {
		return err
	}
	w.skipped = w.skipped || !errors.Is(err, fs.ErrNotExist)
	return nil
}

// names returns the names in a directory in their order, without drafts. With
// errTooLarge come the first that were met.
func (w *walker) names(at string) ([]string, error) {
	directory, err := w.at.root.OpenFile(path.Join(w.at.name, at), openDirectory, 0)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	names, err := directory.Readdirnames(maxDirectory + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	err = nil
	if len(names) > maxDirectory {
		names, err = names[:maxDirectory], errTooLarge
	}
	names = slices.DeleteFunc(names, isDraft)
	slices.Sort(names)
	return names, err
}
