package localfiles

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// lstatBatch is how many entries of a directory are looked at between two
// questions whether anybody still wants to know.
const lstatBatch = 128

// found is an entry that a walk came across.
type found struct {
	dir  *directory // that it is in; valid during the visit only
	base string     // its name there
	name string     // relative to where the walk began
	info info
}

// walker goes through what is below a directory, in the order of paths, a
// directory before what is in it. It follows no symbolic link and does not see
// drafts.
type walker struct {
	ctx   context.Context //nolint:containedctx // it lives as long as one call
	at    place           // where it begins
	depth int
	// visit is called for each entry. It may return fs.SkipDir for a directory,
	// fs.SkipAll to end the walk.
	visit func(found) error
	// complete makes it an error to leave something out.
	complete bool
	// skipped tells that something was left out: a directory that may not be
	// read, one that is too large, or too deep a nest.
	skipped bool
}

// walk visits what is in a directory.
func (w *walker) walk(dir *directory) error {
	err := w.below(dir, "", 1)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

func (w *walker) below(dir *directory, at string, level int) error {
	names, err := w.at.names(dir)
	if errors.Is(err, errTooLarge) && !w.complete {
		w.skipped, err = true, nil
	}
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(names, lstatBatch) {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		infos := make([]*info, len(batch))
		err := w.at.as(func() error {
			for i, name := range batch {
				at, err := dir.lstat(name)
				switch {
				case err == nil:
					infos[i] = &at
				case !errors.Is(err, fs.ErrNotExist):
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, name := range batch {
			if infos[i] == nil {
				continue // removed meanwhile
			}
			if err := w.ctx.Err(); err != nil { // to match a long path takes its time
				return err
			}
			if err := w.entry(found{dir, name, path.Join(at, name), *infos[i]}, level); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walker) entry(f found, level int) error {
	err := w.visit(f)
	switch {
	case errors.Is(err, fs.SkipDir):
		return nil
	case err != nil, !f.info.isDir(), level == w.depth:
		return err
	case level == maxDepth:
		err = errTooDeep
	default:
		var sub *directory
		if sub, err = w.at.sub(f.dir, f.base); err == nil {
			err = w.below(sub, f.name, level+1)
			sub.close()
		}
		if !gone(err) {
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

// gone tells a directory that was there a moment ago, or that may not be read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR)
}
