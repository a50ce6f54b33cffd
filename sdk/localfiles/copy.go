package localfiles

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// copy copies what is at from to a draft beside to, and gives that its name when it is
// whole.
func (t *transfer) copy(ctx context.Context) error {
	draft := t.to.draft()
	err := t.copyAll(ctx, draft)
	if err == nil {
		err = t.clear() // code may have put something there meanwhile
	}
	return draft.become(t.to, err)
}

func (t *transfer) copyAll(ctx context.Context, draft place) error {
	if err := copyOne(ctx, t.from, t.source, draft); err != nil || !t.source.IsDir() {
		return err
	}
	// Modes come last, what is inside first: a directory may be read-only.
	type restricted struct {
		at   place
		mode fs.FileMode
	}
	later := []restricted{{draft, t.source.Mode()}}
	w := &walker{ctx: ctx, at: t.from, depth: anyDepth, complete: true, visit: func(name string, info fs.FileInfo) error {
		if info.IsDir() {
			later = append(later, restricted{draft.below(name), info.Mode()})
		}
		return copyOne(ctx, t.from.below(name), info, draft.below(name))
	}}
	if err := w.walk(); err != nil {
		return t.from.explain(err)
	}
	for _, r := range slices.Backward(later) {
		if err := r.at.root.Chmod(r.at.name, r.mode.Perm()); err != nil {
			return err
		}
	}
	return nil
}

// copyOne copies a file, a link, or a directory without what is in it.
func copyOne(ctx context.Context, from place, info fs.FileInfo, to place) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return to.root.Mkdir(to.name, 0o755)
	case fs.ModeSymlink:
		target, err := from.root.Readlink(from.name)
		if err != nil {
			return from.explain(err)
		}
		return to.root.Symlink(target, to.name)
	case 0:
		source, opened, err := from.open()
		if err != nil {
			return from.explain(err)
		}
		defer source.Close()
		return to.write(untilDone{ctx, io.LimitReader(source, opened.Size())}, opened.Mode().Perm(), time.Time{})
	default:
		return from.refuse(sdk.CodeConflict, "is a socket, a pipe or a device")
	}
}
