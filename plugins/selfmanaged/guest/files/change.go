package files

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *service) MakeDirectory(_ context.Context, req *providerv1.MakeDirectoryRequest) (*providerv1.MakeDirectoryResponse, error) {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return nil, err
	}
	dir, base, err := at.parent(true)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := makeDirectory(dir, base, fs.FileMode(req.GetMode()).Perm()); err != nil {
		return nil, at.explain(err)
	}
	info, err := at.lstat(dir, base)
	if err != nil {
		return nil, err
	}
	return &providerv1.MakeDirectoryResponse{File: info}, nil
}

// makeDirectory makes a directory, unless there is one. Mode 0 stands for 0755.
func makeDirectory(dir *directory, name string, mode fs.FileMode) error {
	return asUser(func() error {
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

func (s *service) RemoveFile(_ context.Context, req *providerv1.RemoveFileRequest) (*providerv1.RemoveFileResponse, error) {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return nil, err
	}
	dir, base, err := at.parent(false)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	err = asUser(func() error {
		if !req.GetRecursive() {
			return dir.remove(base)
		}
		return dir.removeAll(base, maxDepth)
	})
	return &providerv1.RemoveFileResponse{}, at.explain(err)
}

func (s *service) MoveFile(ctx context.Context, req *providerv1.MoveFileRequest) (*providerv1.MoveFileResponse, error) {
	t, err := s.transfer(req.GetFrom(), req.GetTo(), req.GetOverwrite())
	if err != nil {
		return nil, err
	}
	defer t.close()
	err = t.rename(t.fromDir, t.fromBase)
	if errors.Is(err, unix.EXDEV) {
		if err = t.copy(ctx, s); err == nil {
			err = t.from.explain(asUser(func() error { return t.fromDir.removeAll(t.fromBase, maxDepth) }))
		}
	}
	if err != nil {
		return nil, t.to.explain(err)
	}
	info, err := t.to.lstat(t.toDir, t.toBase)
	if err != nil {
		return nil, err
	}
	return &providerv1.MoveFileResponse{File: info}, nil
}

func (s *service) CopyFile(ctx context.Context, req *providerv1.CopyFileRequest) (*providerv1.CopyFileResponse, error) {
	t, err := s.transfer(req.GetFrom(), req.GetTo(), req.GetOverwrite())
	if err != nil {
		return nil, err
	}
	defer t.close()
	if err := t.copy(ctx, s); err != nil {
		return nil, err
	}
	info, err := t.to.lstat(t.toDir, t.toBase)
	if err != nil {
		return nil, err
	}
	return &providerv1.CopyFileResponse{File: info}, nil
}

// transfer is a move or a copy.
type transfer struct {
	from, to         place
	fromDir, toDir   *directory
	fromBase, toBase string
	source           info
	overwrite        bool
}

func (s *service) transfer(from, to string, overwrite bool) (*transfer, error) {
	t := &transfer{overwrite: overwrite}
	var err error
	if t.from, err = s.place("from", from); err != nil {
		return nil, err
	}
	if t.to, err = s.place("to", to); err != nil {
		return nil, err
	}
	if below := t.from.String() + "/"; strings.HasPrefix(t.to.String()+"/", below) {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "to", "must be neither from itself nor below it")
	}
	if t.fromDir, t.fromBase, err = t.from.parent(false); err != nil {
		return nil, err
	}
	if t.toDir, t.toBase, err = t.to.parent(false); err != nil {
		t.close()
		return nil, err
	}
	err = asUser(func() (err error) {
		t.source, err = t.fromDir.lstat(t.fromBase)
		return err
	})
	if err != nil {
		t.close()
		return nil, t.from.explain(err)
	}
	return t, nil
}

func (t *transfer) close() {
	_ = t.fromDir.Close()
	_ = t.toDir.Close()
}

// rename gives something that lies in a directory its final name.
func (t *transfer) rename(dir *directory, name string) error {
	flags := uint(unix.RENAME_NOREPLACE)
	return asUser(func() error {
		if t.overwrite {
			flags = 0
			// rename would replace an empty directory.
			if old, err := t.toDir.lstat(t.toBase); err == nil && old.isDir() {
				return t.to.inTheWay(old)
			}
		}
		return dir.rename(name, t.toDir, t.toBase, flags)
	})
}
