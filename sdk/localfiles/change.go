package localfiles

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// WriteFile implements sdk.Files.
func (f *Files) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	at, err := f.change(req.InstanceID, "path", req.Path)
	return using(at, err, func(at place) (sdk.FileInfo, error) {
		if req.MakeParents {
			if err := at.makeParents(); err != nil {
				return sdk.FileInfo{}, err
			}
		}
		if err := at.write(untilDone{ctx, content}, req.Mode, time.Time{}); err != nil {
			return sdk.FileInfo{}, err
		}
		return at.stat()
	})
}

// MakeDirectory implements sdk.Files.
func (f *Files) MakeDirectory(_ context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	at, err := f.change(instanceID, "path", name)
	return using(at, err, func(at place) (sdk.FileInfo, error) {
		if err := at.makeParents(); err != nil {
			return sdk.FileInfo{}, err
		}
		if err := at.makeDirectory(mode); err != nil {
			return sdk.FileInfo{}, err
		}
		return at.stat()
	})
}

// makeDirectory makes a directory, unless there is one. Mode 0 stands for 0755.
func (at place) makeDirectory(mode fs.FileMode) error {
	err := at.root.Mkdir(at.name, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		if old, statErr := at.root.Lstat(at.name); statErr == nil && old.IsDir() {
			return nil
		}
		return err
	case err != nil || mode == 0:
		return err
	default:
		return at.root.Chmod(at.name, mode.Perm())
	}
}

// RemoveFile implements sdk.Files.
func (f *Files) RemoveFile(_ context.Context, instanceID, name string, recursive bool) error {
	at, err := f.change(instanceID, "path", name)
	_, err = using(at, err, func(at place) (struct{}, error) {
		if _, err := at.root.Lstat(at.name); err != nil {
			return struct{}{}, err
		}
		if recursive {
			return struct{}{}, at.removeAll()
		}
		return struct{}{}, at.root.Remove(at.name)
	})
	return err
}

// removeAll removes a file, or a directory with all that is in it, also where code has
// taken itself the right to do so.
func (at place) removeAll() error {
	err := at.root.RemoveAll(at.name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = at.root.Chmod(at.name, 0o700)
	w := &walker{ctx: context.Background(), at: at, depth: anyDepth, visit: func(name string, info fs.FileInfo) error {
		if info.IsDir() {
			_ = at.root.Chmod(at.below(name).name, 0o700)
		}
		return nil
	}}
	if err := w.walk(); err != nil {
		return err
	}
	return at.root.RemoveAll(at.name)
}

// transfer is a move or a copy.
type transfer struct {
	from, to  place
	source    fs.FileInfo
	overwrite bool
}

func (f *Files) transfer(req sdk.MoveFileRequest) (*transfer, error) {
	from, err := f.change(req.InstanceID, "from", req.From)
	if err != nil {
		return nil, err
	}
	to, err := f.change(req.InstanceID, "to", req.To)
	if err != nil {
		from.close()
		return nil, err
	}
	t := &transfer{from: from, to: to, overwrite: req.Overwrite}
	if t.source, err = from.root.Lstat(from.name); err != nil {
		t.close()
		return nil, from.explain(err)
	}
	if strings.HasPrefix(to.String()+"/", from.String()+"/") {
		t.close()
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "to", "must be neither from itself nor below it")
	}
	if err := t.clear(); err != nil {
		t.close()
		return nil, to.explain(err)
	}
	return t, nil
}

func (t *transfer) close() {
	t.from.close()
	t.to.close()
}

// clear says whether something may be put where it shall go.
func (t *transfer) clear() error {
	if above, err := t.to.root.Stat(path.Dir(t.to.name)); err != nil {
		return err
	} else if !above.IsDir() {
		return t.to.refuse(sdk.CodeConflict, "is below something that is not a directory")
	}
	old, err := t.to.root.Lstat(t.to.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case old.IsDir() || !t.overwrite:
		return t.to.inTheWay(old)
	default:
		return nil
	}
}

// MoveFile implements sdk.Files.
func (f *Files) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	t, err := f.transfer(req)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	defer t.close()
	if t.from.top == t.to.top {
		err = t.to.root.Rename(t.from.name, t.to.name)
	} else if err = t.copy(ctx); err == nil {
		err = t.from.explain(t.from.removeAll())
	}
	if err != nil {
		return sdk.FileInfo{}, t.to.explain(err)
	}
	info, err := t.to.stat()
	return info, t.to.explain(err)
}

// CopyFile implements sdk.Files.
func (f *Files) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	t, err := f.transfer(req)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	defer t.close()
	if err := t.copy(ctx); err != nil {
		return sdk.FileInfo{}, t.to.explain(err)
	}
	info, err := t.to.stat()
	return info, t.to.explain(err)
}
