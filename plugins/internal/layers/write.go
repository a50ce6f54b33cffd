package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Write makes a directory of the tree; dir does not exist. It returns how many bytes the
// files have together, those with several names once for each.
func (t *Tree) Write(ctx context.Context, dir string) (bytes int64, err error) {
	w := &writing{ctx: ctx, limit: t.limits.Bytes, link: os.Link, copies: map[string]string{}}
	if err := w.dir(dir, t.root); err != nil {
		return 0, fmt.Errorf("write the root file system: %w", err)
	}
	return w.bytes, nil
}

// writing is one call of Write.
type writing struct {
	ctx context.Context
	// limit of what is copied, in bytes.
	limit         int64
	bytes, copied int64
	link          func(from, to string) error // os.Link
	// copies are where contents are to be had that have no further names, by content.
	copies map[string]string
}

// dir writes a directory and what is in it. Its name is one that Write got, or one element
// below a directory that was just made: nothing on the way is a link.
func (w *writing) dir(path string, n *node) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return invalid("%s is no name of a file", shown(name))
		}
		child, at := n.children[name], filepath.Join(path, name)
		var err error
		switch {
		case child.isDir():
			err = w.dir(at, child)
		case child.isSymlink():
			err = os.Symlink(child.target, at)
		default:
			w.bytes += child.size
			err = w.file(at, child)
		}
		if err != nil {
			return err
		}
	}
	return os.Chmod(path, n.mode.Perm()|0o700)
}

func (w *writing) file(path string, n *node) error {
	if n.content == "" {
		if err := os.WriteFile(path, n.text, 0o600); err != nil {
			return err
		}
		return os.Chmod(path, n.mode.Perm())
	}
	from := n.content
	if again := w.copies[n.content]; again != "" {
		from = again
	}
	err := w.link(from, path)
	if !errors.Is(err, unix.EMLINK) && !errors.Is(err, unix.EXDEV) {
		return err
	}
	// It has as many names as the file system allows, or is on another one. Further names
	// are those of a copy.
	if w.copied += n.size; w.copied > w.limit {
		return invalid("files of the image have so many names that copies of them would take more than %d bytes", w.limit)
	}
	if err := w.copy(n.content, path); err != nil {
		return err
	}
	w.copies[n.content] = path
	return nil
}

// copy makes a file with the content of another one, its mode and its time.
func (w *writing) copy(content, path string) (err error) {
	from, err := os.Open(content)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for err == nil { // a piece at a time: a large file takes long
		if err = w.ctx.Err(); err == nil {
			_, err = io.CopyN(to, from, copyPiece)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	err = errors.Join(err, to.Chmod(info.Mode()&fs.ModePerm), to.Close())
	return errors.Join(err, os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// copyPiece is after how many bytes a copy looks whether its caller still waits.
const copyPiece = 64 << 20
