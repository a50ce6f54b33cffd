package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// listBatch is how many entries are passed on at once.
const listBatch = 200

// ListFiles implements sdk.Files.
func (p *Provider) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	if req.Glob != "" && !doublestar.ValidatePattern(req.Glob) {
		return false, sdk.FieldErrorf(sdk.CodeInvalidRequest, "glob", "is not a pattern")
	}
	var list []sdk.FileInfo
	_, err = inPlace(p, req.InstanceID, "path", req.Path, func(at place) (struct{}, error) {
		return struct{}{}, at.walk(ctx, func(below place, relative string) error {
			info, err := below.stat()
			if err != nil {
				return nil //nolint:nilerr // it is gone by now
			}
			if req.Glob == "" || doublestar.MatchUnvalidated(req.Glob, relative) {
				if truncated = len(list) == req.Limit; truncated {
					return fs.SkipAll
				}
				list = append(list, info)
			}
			if info.Type == sdk.FileDirectory && strings.Count(relative, "/")+1 == req.Depth {
				return fs.SkipDir
			}
			return nil
		})
	})
	for batch := range slices.Chunk(list, listBatch) {
		err = errors.Join(err, found(batch))
	}
	return truncated, err
}

// walk visits what is below a directory, in the order of paths.
func (at place) walk(ctx context.Context, visit func(below place, relative string) error) error {
	return fs.WalkDir(at.root.FS(), at.name, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case name == at.name && err == nil && !entry.IsDir():
			return at.refuse(sdk.CodeConflict, "is not a directory")
		case name == at.name:
			return err
		case err != nil:
			return nil //nolint:nilerr // a directory that may not be read, or is gone
		}
		return visit(place{root: at.root, name: name, field: at.field}, strings.TrimPrefix(name, at.name+"/"))
	})
}

// MoveFile implements sdk.Files.
func (p *Provider) MoveFile(_ context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return inPlace(p, req.InstanceID, "from", req.From, func(from place) (sdk.FileInfo, error) {
		to, err := from.destination(req)
		if err != nil {
			return sdk.FileInfo{}, err
		}
		if err := to.explain(from.root.Rename(from.name, to.name)); err != nil {
			return sdk.FileInfo{}, err
		}
		return to.stat()
	})
}

// CopyFile implements sdk.Files.
func (p *Provider) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return inPlace(p, req.InstanceID, "from", req.From, func(from place) (sdk.FileInfo, error) {
		to, err := from.destination(req)
		if err != nil {
			return sdk.FileInfo{}, err
		}
		draft := to.draft()
		if err := to.explain(draft.become(to, from.copyTo(ctx, draft))); err != nil {
			return sdk.FileInfo{}, err
		}
		return to.stat()
	})
}

// destination is where something is moved or copied to, if that is possible.
func (at place) destination(req sdk.MoveFileRequest) (place, error) {
	to, err := locate(at.root, "to", req.To)
	if err != nil {
		return place{}, err
	}
	if _, err := at.root.Lstat(at.name); err != nil {
		return place{}, err
	}
	old, err := at.root.Lstat(to.name)
	switch {
	case slices.Contains(keptDirectories, at.name) || strings.HasPrefix(to.name+"/", at.name+"/"):
		return place{}, to.refuse(sdk.CodeInvalidRequest, "is what is moved or copied, or in it")
	case err == nil && !req.Overwrite:
		return place{}, to.refuse(sdk.CodeConflict, "exists already")
	case err == nil && old.IsDir():
		return place{}, to.refuse(sdk.CodeConflict, "is a directory")
	}
	return to, nil
}

// copyTo copies a file, or a directory with all that is in it.
func (at place) copyTo(ctx context.Context, to place) error {
	info, err := at.stat()
	if err != nil {
		return err
	}
	if err := at.copyOne(ctx, info, to); err != nil || info.Type != sdk.FileDirectory {
		return err
	}
	return at.walk(ctx, func(below place, relative string) error {
		info, err := below.stat()
		if err != nil {
			return nil //nolint:nilerr // it is gone by now
		}
		return below.copyOne(ctx, info, place{root: to.root, name: path.Join(to.name, relative), field: to.field})
	})
}

func (at place) copyOne(ctx context.Context, info sdk.FileInfo, to place) error {
	switch info.Type {
	case sdk.FileDirectory:
		return to.root.Mkdir(to.name, info.Mode|0o700) // we have to write in it
	case sdk.FileSymlink:
		return to.root.Symlink(info.Target, to.name)
	case sdk.FileRegular:
		f, err := at.root.OpenFile(at.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return to.write(untilDone{ctx, f}, info.Mode)
	default:
		return at.refuse(sdk.CodeConflict, "is a socket, a pipe or a device")
	}
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
