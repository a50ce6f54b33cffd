package files

import (
	"context"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// copy copies what is at from to a draft beside to, and gives that its name when
// it is whole.
func (t *transfer) copy(ctx context.Context, s *service) (err error) {
	draft := newDraftName()
	defer func() {
		if err != nil {
			_ = asUser(func() error { return t.toDir.removeAll(draft, maxDepth) })
		}
	}()
	c := &copier{ctx: ctx, service: s, from: t.from, to: t.to}
	if err := c.one(found{t.fromDir, t.fromBase, "", t.source}, t.toDir, draft); err != nil {
		return err
	}
	if t.source.isDir() {
		if err := c.tree(t.fromDir, t.fromBase, t.toDir, draft); err != nil {
			return err
		}
		// Last, for the directory may be read-only.
		if err := asUser(func() error { return t.toDir.chmod(draft, t.source.mode) }); err != nil {
			return t.to.explain(err)
		}
	}
	return t.to.explain(t.rename(t.toDir, draft))
}

func subAsUser(dir *directory, name string) (sub *directory, err error) {
	err = asUser(func() error {
		sub, err = openBelow(dir, name)
		return err
	})
	return sub, err
}

// restrict sets the mode of a directory by a path that holds no links.
func restrict(top *directory, name string, mode fs.FileMode) error {
	dir, err := subAsUser(top, path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return asUser(func() error { return dir.chmod(path.Base(name), mode) })
}

type copier struct {
	ctx      context.Context
	service  *service
	from, to place
}

// tree copies what is in a directory into one that exists.
func (c *copier) tree(dir *directory, name string, toDir *directory, toName string) error {
	source, err := subAsUser(dir, name)
	if err != nil {
		return c.from.explain(err)
	}
	defer source.Close()
	target, err := subAsUser(toDir, toName)
	if err != nil {
		return c.to.explain(err)
	}
	defer target.Close()
	type restricted struct {
		name string
		mode fs.FileMode
	}
	var later []restricted
	w := &walker{ctx: c.ctx, depth: anyDepth, complete: true, visit: func(f found) error {
		into, err := subAsUser(target, path.Dir(f.name))
		if err != nil {
			return c.to.explain(err)
		}
		defer into.Close()
		if f.info.isDir() && f.info.mode.Perm() != 0o755 {
			later = append(later, restricted{f.name, f.info.mode})
		}
		return c.one(f, into, f.base)
	}}
	if err := w.walk(source); err != nil {
		return c.from.explain(err)
	}
	for _, r := range slices.Backward(later) { // what is inside first
		if err := restrict(target, r.name, r.mode); err != nil {
			return c.to.explainBelow(r.name, err)
		}
	}
	return nil
}

// one copies a file, a link, or a directory without what is in it.
func (c *copier) one(f found, into *directory, name string) error {
	if err := c.ctx.Err(); err != nil {
		return c.from.explain(err)
	}
	switch f.info.mode.Type() {
	case fs.ModeDir:
		return c.to.explainBelow(f.name, makeDirectory(into, name, 0))
	case fs.ModeSymlink:
		return c.to.explainBelow(f.name, asUser(func() error {
			target, err := f.dir.readlink(f.base)
			if err != nil {
				return err
			}
			return into.symlink(target, name)
		}))
	case 0:
		return c.regular(f, into, name)
	default:
		return sdk.FieldErrorf(sdk.CodeConflict, c.from.field, "%s: is a socket, a pipe or a device", c.from.below(f.name))
	}
}

func (c *copier) regular(f found, into *directory, name string) error {
	source, info, err := c.from.openRegular(f.dir, f.base)
	if err != nil {
		return err
	}
	defer source.Close()
	d, err := c.service.newDraft(c.to, into)
	defer d.discard()
	if err != nil {
		return err
	}
	if err := d.fill(&untilDone{c.ctx, io.LimitReader(source, info.size)}, make([]byte, copyBytes)); err != nil {
		return c.from.explainBelow(f.name, err)
	}
	return d.commit(name, info.mode.Perm())
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r *untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
