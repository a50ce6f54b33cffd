package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// StatFile implements sdk.Files.
func (p *Provider) StatFile(_ context.Context, instanceID, name string) (sdk.FileInfo, error) {
	return inPlace(p, instanceID, "path", name, func(at place) (sdk.FileInfo, error) { return at.stat() })
}

// ReadFile implements sdk.Files.
func (p *Provider) ReadFile(_ context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	type opened struct {
		*io.SectionReader
		io.Closer
	}
	var file opened
	info, err := inPlace(p, req.InstanceID, "path", req.Path, func(at place) (sdk.FileInfo, error) {
		// O_NONBLOCK, for opening a named pipe waits for somebody to write.
		f, err := at.root.OpenFile(at.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return sdk.FileInfo{}, err
		}
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return sdk.FileInfo{}, errors.Join(err, f.Close(), at.refuse(sdk.CodeConflict, "is not a regular file"))
		}
		offset, length := req.Offset, req.Length
		if offset < 0 {
			offset = max(info.Size()+offset, 0)
		}
		if length == 0 {
			length = math.MaxInt64 - offset
		}
		file = opened{io.NewSectionReader(f, offset, length), f}
		return at.describe(info), nil
	})
	return info, file, err
}

// WriteFile implements sdk.Files.
func (p *Provider) WriteFile(_ context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	return inPlace(p, req.InstanceID, "path", req.Path, func(at place) (sdk.FileInfo, error) {
		if req.MakeParents {
			if err := at.root.MkdirAll(path.Dir(at.name), 0o755); err != nil {
				return sdk.FileInfo{}, err
			}
		}
		if err := at.write(content, req.Mode); err != nil {
			return sdk.FileInfo{}, err
		}
		return at.stat()
	})
}

// MakeDirectory implements sdk.Files.
func (p *Provider) MakeDirectory(_ context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	return inPlace(p, instanceID, "path", name, func(at place) (sdk.FileInfo, error) {
		_, err := at.root.Lstat(at.name)
		there := err == nil
		if err := at.root.MkdirAll(at.name, 0o755); err != nil {
			return sdk.FileInfo{}, err
		}
		if mode != 0 && !there {
			if err := at.root.Chmod(at.name, mode); err != nil {
				return sdk.FileInfo{}, err
			}
		}
		return at.stat()
	})
}

// RemoveFile implements sdk.Files.
func (p *Provider) RemoveFile(_ context.Context, instanceID, name string, recursive bool) error {
	_, err := inPlace(p, instanceID, "path", name, func(at place) (sdk.FileInfo, error) {
		if slices.Contains(keptDirectories, at.name) {
			return sdk.FileInfo{}, at.refuse(sdk.CodeNotAllowed, "stays as long as the instance")
		}
		info, err := at.stat()
		if err == nil && recursive {
			return info, at.root.RemoveAll(at.name)
		}
		if err == nil {
			err = at.root.Remove(at.name)
		}
		return info, err
	})
	return err
}

// write makes or replaces a regular file, whole or not at all. Mode 0 stands for that
// of the file that is replaced, or 0644.
func (at place) write(content io.Reader, mode fs.FileMode) (err error) {
	old, err := at.root.Lstat(at.name)
	if err == nil {
		if !old.Mode().IsRegular() {
			return at.refuse(sdk.CodeConflict, "something else than a file is there")
		}
		mode = cmp.Or(mode, old.Mode().Perm())
	}
	draft := at.draft()
	f, err := at.root.OpenFile(draft.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Chmod(cmp.Or(mode, 0o644)), f.Close())
	return draft.become(at, err)
}

// draft is a new place beside this one, for what is not whole yet.
func (at place) draft() place {
	return place{root: at.root, name: path.Join(path.Dir(at.name), ".draft-"+rand.Text()), field: at.field}
}

// become gives a draft its name, or removes it if there was an error.
func (at place) become(to place, err error) error {
	if err == nil {
		err = at.root.Rename(at.name, to.name)
	}
	if err != nil {
		_ = at.root.RemoveAll(at.name)
	}
	return err
}
