package localfiles

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// MakeDirectory implements sdk.Files.
func (f *Files) MakeDirectory(_ context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	at, err := f.place(instanceID, "path", name)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	dir, base, err := at.parent(true)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	defer dir.close()
	if err := at.makeDirectory(dir, base, mode); err != nil {
		return sdk.FileInfo{}, at.explain(err)
	}
	return at.lstat(dir, base)
}

// makeDirectory makes a directory, unless there is one. Mode 0 stands for 0755.
func (at place) makeDirectory(dir *directory, name string, mode fs.FileMode) error {
	return at.as(func() error {
		err := dir.mkdir(name)
		switch {
		case errors.Is(err, fs.ErrExist):
			if old, statErr := dir.lstat(name); statErr == nil && old.isDir() {
				return nil
			}
			return err
		case err != nil || mode == 0:
			return err
		default:
			return dir.chmod(name, mode)
		}
	})
}

// SetFileMode implements sdk.FileModeSetter.
func (f *Files) SetFileMode(_ context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	at, err := f.place(instanceID, "path", name)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	dir, base, err := at.locate(true)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	defer dir.close()
	if base == "." {
		return sdk.FileInfo{}, at.refuseTop()
	}
	if err := at.as(func() error { return dir.chmod(base, mode) }); err != nil {
		return sdk.FileInfo{}, at.explain(err)
	}
	return at.lstat(dir, base)
}

// RemoveFile implements sdk.Files.
func (f *Files) RemoveFile(ctx context.Context, instanceID, name string, recursive bool) error {
	at, err := f.place(instanceID, "path", name)
	if err != nil {
		return err
	}
	dir, base, err := at.parent(false)
	if err != nil {
		return err
	}
	defer dir.close()
	return at.explain(at.as(func() error {
		if recursive {
			return dir.removeAll(ctx, base, maxDepth)
		}
		return dir.remove(base)
	}))
}

// MoveFile implements sdk.Files.
func (f *Files) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return f.transfer(req, func(t *transfer) error {
		err := t.rename(t.fromDir, t.fromBase)
		switch {
		case errors.Is(err, unix.EXDEV):
		case errors.Is(err, unix.EACCES) && t.source.isDir() && t.from.top != t.to.top:
			// A directory that may not be written cannot change its parent.
		default:
			return t.to.explain(err)
		}
		if err := t.copy(ctx); err != nil {
			return err
		}
		return t.from.explain(t.from.as(func() error { return t.fromDir.removeAll(ctx, t.fromBase, maxDepth) }))
	})
}

// CopyFile implements sdk.Files.
func (f *Files) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return f.transfer(req, func(t *transfer) error { return t.copy(ctx) })
}

// transfer is a move or a copy.
type transfer struct {
	from, to         place
	fromDir, toDir   *directory
	fromBase, toBase string
	source           info
	overwrite        bool
}

// transfer opens both ends of a transfer, does it, and describes what is there then.
func (f *Files) transfer(req sdk.MoveFileRequest, do func(*transfer) error) (sdk.FileInfo, error) {
	t := &transfer{overwrite: req.Overwrite}
	var err error
	if t.from, err = f.place(req.InstanceID, "from", req.From); err != nil {
		return sdk.FileInfo{}, err
	}
	if t.to, err = f.place(req.InstanceID, "to", req.To); err != nil {
		return sdk.FileInfo{}, err
	}
	if strings.HasPrefix(t.to.String()+"/", t.from.String()+"/") {
		return sdk.FileInfo{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "to", "must be neither from itself nor below it")
	}
	if t.fromDir, t.fromBase, err = t.from.parent(false); err != nil {
		return sdk.FileInfo{}, err
	}
	defer t.fromDir.close()
	if t.toDir, t.toBase, err = t.to.parent(false); err != nil {
		return sdk.FileInfo{}, err
	}
	defer t.toDir.close()
	if t.source, err = rightly(t.from, func() (info, error) { return t.fromDir.lstat(t.fromBase) }); err != nil {
		return sdk.FileInfo{}, t.from.explain(err)
	}
	if err := t.to.as(t.clear); err != nil { // before all of it is copied
		return sdk.FileInfo{}, t.to.explain(err)
	}
	if err := do(t); err != nil {
		return sdk.FileInfo{}, err
	}
	return t.to.lstat(t.toDir, t.toBase)
}

// clear says whether something may be put where it shall go. A directory never gives way,
// though rename would replace an empty one.
func (t *transfer) clear() error {
	old, err := t.toDir.lstat(t.toBase)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && (old.isDir() || !t.overwrite):
		return t.to.inTheWay(old)
	default:
		return err
	}
}

// rename gives something that lies in a directory its final name.
func (t *transfer) rename(dir *directory, name string) error {
	return t.to.as(func() error {
		if !t.overwrite {
			err := dir.rename(name, t.toDir, t.toBase, unix.RENAME_NOREPLACE)
			if !errors.Is(err, unix.EINVAL) { // of a file system that knows no such rename
				return err
			}
		}
		if err := t.clear(); err != nil {
			return err
		}
		return dir.rename(name, t.toDir, t.toBase, 0)
	})
}

// copy copies what is at from to a draft beside to, and gives that its name when it is
// whole.
func (t *transfer) copy(ctx context.Context) (err error) {
	draft := newDraftName()
	defer func() {
		if err != nil {
			_ = t.to.as(func() error { return t.toDir.removeAll(context.WithoutCancel(ctx), draft, maxDepth) })
		}
	}()
	c := &copier{ctx: ctx, from: t.from, to: t.to}
	if err := c.one(found{t.fromDir, t.fromBase, "", t.source}, t.toDir, draft); err != nil {
		return err
	}
	if t.source.isDir() {
		if err := c.tree(t.fromDir, t.fromBase, t.toDir, draft); err != nil {
			return err
		}
		// Last, for the directory may be read-only.
		if err := t.to.as(func() error { return t.toDir.chmod(draft, t.source.mode) }); err != nil {
			return t.to.explain(err)
		}
	}
	return t.to.explain(t.rename(t.toDir, draft))
}

type copier struct {
	ctx      context.Context //nolint:containedctx // it lives as long as one call
	from, to place
}

// tree copies what is in a directory into one that exists.
func (c *copier) tree(dir *directory, name string, toDir *directory, toName string) error {
	source, err := c.from.sub(dir, name)
	if err != nil {
		return c.from.explain(err)
	}
	defer source.close()
	target, err := c.to.sub(toDir, toName)
	if err != nil {
		return c.to.explain(err)
	}
	defer target.close()
	var later []found // directories whose mode would be in the way of what is in them
	w := &walker{ctx: c.ctx, at: c.from, depth: anyDepth, complete: true, visit: func(f found) error {
		if f.info.isDir() && f.info.mode.Perm() != 0o755 {
			later = append(later, f)
		}
		return c.into(target, f.name, func(into *directory) error { return c.one(f, into, f.base) })
	}}
	if err := w.walk(source); err != nil {
		return c.from.explain(err)
	}
	for _, f := range slices.Backward(later) { // what is inside first
		err := c.into(target, f.name, func(into *directory) error {
			return c.to.as(func() error { return into.chmod(f.base, f.info.mode) })
		})
		if err != nil {
			return c.to.below(f.name).explain(err)
		}
	}
	return nil
}

// into calls do with the directory that a name below another is in.
func (c *copier) into(top *directory, name string, do func(*directory) error) error {
	dir, err := c.to.sub(top, path.Dir(name))
	if err != nil {
		return c.to.explain(err)
	}
	defer dir.close()
	return do(dir)
}

// one copies a file, a link, or a directory without what is in it.
func (c *copier) one(f found, into *directory, name string) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	from, to := c.from.below(f.name), c.to.below(f.name)
	switch f.info.mode.Type() {
	case fs.ModeDir:
		return to.explain(to.makeDirectory(into, name, 0))
	case fs.ModeSymlink:
		return to.explain(to.as(func() error {
			target, err := f.dir.readlink(f.base)
			if err != nil {
				return err
			}
			return into.symlink(target, name)
		}))
	case 0:
	default:
		return from.refuse(sdk.CodeConflict, "is a socket, a pipe or a device")
	}
	source, i, err := from.openRegular(f.dir, f.base)
	if err != nil {
		return err
	}
	defer source.Close()
	d, err := to.newDraft(into)
	defer d.discard()
	if err != nil {
		return err
	}
	if err := d.fill(untilDone{c.ctx, io.LimitReader(source, i.size)}, make([]byte, copyBytes)); err != nil {
		return from.explain(err)
	}
	return d.commit(name, i.mode)
}
