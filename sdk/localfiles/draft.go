package localfiles

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// A draft is what is not finished yet, beside its final name, so that it appears
// whole. Walks and watches do not show drafts; code sees them.
const (
	draftPrefix = ".sandbox-draft-"
	draftLength = len(draftPrefix) + 26
)

func isDraft(name string) bool {
	return len(name) == draftLength && strings.HasPrefix(name, draftPrefix)
}

// draft is a new place beside this one.
func (at place) draft() place { return at.beside(draftPrefix + rand.Text()) }

// write makes or replaces a regular file, whole or not at all. Mode 0 stands for that
// of the file that is replaced, else 0644. Times are those of a zero modified unless
// they are given.
func (at place) write(content io.Reader, mode fs.FileMode, modified time.Time) error {
	draft := at.draft()
	file, err := draft.root.OpenFile(draft.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{content}, make([]byte, copyBytes))
	if err == nil {
		err = at.admit(&mode)
	}
	if err == nil {
		err = file.Chmod(cmp.Or(mode.Perm(), 0o644))
	}
	err = errors.Join(err, file.Close())
	if err == nil && !modified.IsZero() {
		err = draft.root.Chtimes(draft.name, modified, modified)
	}
	return draft.become(at, err)
}

// admit says whether a regular file may be put here, and takes over the mode of the one
// that is there if none is asked for.
func (at place) admit(mode *fs.FileMode) error {
	old, err := at.root.Lstat(at.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !old.Mode().IsRegular():
		return at.inTheWay(old)
	case *mode == 0:
		*mode = old.Mode().Perm()
	}
	return nil
}

// become gives a draft its name, or removes it if there was an error.
func (at place) become(to place, err error) error {
	if err == nil {
		err = at.root.Rename(at.name, to.name)
	}
	if err != nil {
		_ = at.removeAll()
	}
	return err
}

// makeParents makes the directories above a place that are missing.
func (at place) makeParents() error { return at.root.MkdirAll(path.Dir(at.name), 0o755) }
