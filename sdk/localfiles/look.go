package localfiles

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

// Nothing that is opened waits for the other end of a pipe.
const (
	openDirectory = os.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NONBLOCK
	openToRead    = os.O_RDONLY | syscall.O_NONBLOCK
)

// listBatch is how many entries or matches are passed on at once.
const listBatch = 200

// StatFile implements sdk.Files.
func (f *Files) StatFile(_ context.Context, instanceID, name string) (sdk.FileInfo, error) {
	at, err := f.at(instanceID, "path", name, false)
	return using(at, err, place.stat)
}

func (at place) stat() (sdk.FileInfo, error) {
	info, err := at.root.Lstat(at.name)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	return at.describe(info), nil
}

func (at place) describe(info fs.FileInfo) sdk.FileInfo {
	d := sdk.FileInfo{Path: at.String(), Type: sdk.FileOther, Mode: info.Mode().Perm(), ModifiedAt: info.ModTime()}
	switch info.Mode().Type() {
	case 0:
		d.Type, d.Size = sdk.FileRegular, info.Size()
	case fs.ModeDir:
		d.Type = sdk.FileDirectory
	case fs.ModeSymlink:
		d.Type = sdk.FileSymlink
		d.Target, _ = at.root.Readlink(at.name) // it may be gone by now
	}
	return d
}

// ListFiles implements sdk.Files.
func (f *Files) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	selects, err := glob.Compile(req.Glob)
	if err != nil {
		return false, sdk.FieldErrorf(sdk.CodeInvalidRequest, "glob", "%w", err)
	}
	at, err := f.at(req.InstanceID, "path", req.Path, true)
	return using(at, err, func(at place) (bool, error) {
		limit, truncated := min(req.Limit, maxResults), false
		var batch []sdk.FileInfo
		w := &walker{ctx: ctx, at: at, depth: req.Depth, visit: func(name string, info fs.FileInfo) error {
			entry := at.below(name)
			switch {
			case !selects.Match(name):
				return nil
			case limit == 0, len(entry.String()) > maxPath:
				truncated = true
				return fs.SkipAll
			}
			limit--
			batch = append(batch, entry.describe(info))
			if len(batch) < listBatch {
				return nil
			}
			err := found(batch)
			batch = nil
			return err
		}}
		if err := w.walk(); err != nil {
			return false, err
		}
		if len(batch) > 0 {
			if err := found(batch); err != nil {
				return false, err
			}
		}
		return truncated || w.skipped, nil
	})
}

// ReadFile implements sdk.Files.
func (f *Files) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	type opened struct {
		io.Reader
		io.Closer
	}
	var content io.ReadCloser
	at, err := f.at(req.InstanceID, "path", req.Path, true)
	info, err := using(at, err, func(at place) (sdk.FileInfo, error) {
		file, info, err := at.open()
		if err != nil {
			return sdk.FileInfo{}, err
		}
		offset, length := section(info.Size(), req.Offset, req.Length)
		content = opened{untilDone{ctx, io.NewSectionReader(file, offset, length)}, file}
		return at.describe(info), nil
	})
	return info, content, err
}

// section returns which bytes of a file of a size are meant. What it grows by while it
// is read is none of them.
func section(size, offset, length int64) (from, count int64) {
	if offset < 0 {
		offset += size // it cannot overflow: the signs differ
	}
	offset = min(max(offset, 0), size)
	if length <= 0 {
		length = math.MaxInt64
	}
	return offset, min(length, size-offset)
}

// open opens a regular file for reading, and nothing else.
func (at place) open() (*os.File, fs.FileInfo, error) {
	file, err := at.root.OpenFile(at.name, openToRead, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = at.refuse(sdk.CodeConflict, "is not a regular file")
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context //nolint:containedctx // it lives as long as one call
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// base is the last name of a place, that of the whole if it is one.
func (at place) base() string { return path.Base(at.String()) }
