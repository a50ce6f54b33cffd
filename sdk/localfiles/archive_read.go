package localfiles

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const maxArchivePaths = 1000

// ReadArchive implements sdk.Archiver.
func (f *Files) ReadArchive(ctx context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	if len(req.Paths) > maxArchivePaths {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "paths", "must be at most %d", maxArchivePaths)
	}
	at, err := f.at(req.InstanceID, "directory", req.Directory, true)
	if err != nil {
		return nil, err
	}
	names, err := at.wanted(req.Paths)
	if err != nil {
		at.close()
		return nil, err
	}
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer at.close()
		a := &archive{ctx: ctx, at: at, tar: tar.NewWriter(writer)}
		err := a.pack(names)
		if err == nil {
			err = a.tar.Close()
		}
		writer.CloseWithError(at.explain(err))
	}()
	stop := context.AfterFunc(ctx, func() { writer.CloseWithError(ctx.Err()) })
	return &packed{reader, func() {
		stop()
		cancel()
		_ = reader.Close()
		<-ended
	}}, nil
}

// packed is an archive in the making; Close waits until nothing of it goes on.
type packed struct {
	io.Reader
	end func()
}

// Close implements io.Closer.
func (p *packed) Close() error {
	p.end()
	return nil
}

// wanted checks which paths below a directory are asked for.
func (at place) wanted(paths []string) ([]string, error) {
	info, err := at.root.Stat(at.name)
	switch {
	case err != nil:
		return nil, at.explain(err)
	case !info.IsDir():
		return nil, at.refuse(sdk.CodeConflict, "is not a directory")
	}
	names := make([]string, 0, len(paths))
	for _, asked := range paths {
		full := path.Join(at.String(), asked)
		name, below := strings.CutPrefix(full, strings.TrimSuffix(at.String(), "/")+"/")
		if path.IsAbs(asked) || !below {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "paths", "%s: must be below %s", asked, at)
		}
		entry := at.below(name)
		entry.field = "paths"
		if _, err := entry.root.Lstat(entry.name); err != nil {
			return nil, entry.explain(err)
		}
		names = append(names, name)
	}
	return names, nil
}

// archive is one that is being written.
type archive struct {
	ctx context.Context //nolint:containedctx // it lives as long as one call
	at  place
	tar *tar.Writer
}

// pack writes what has these names; all that is in the directory if there are none.
func (a *archive) pack(names []string) error {
	if len(names) == 0 {
		return a.tree(".")
	}
	for _, name := range names {
		info, err := a.at.root.Lstat(a.at.below(name).name)
		if err != nil {
			return err
		}
		if err := a.entry(name, info); err != nil {
			return err
		}
		if info.IsDir() {
			if err := a.tree(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *archive) tree(prefix string) error {
	w := &walker{ctx: a.ctx, at: a.at.below(prefix), depth: anyDepth, complete: true, visit: func(name string, info fs.FileInfo) error {
		return a.entry(path.Join(prefix, name), info)
	}}
	return w.walk()
}

// entry writes a file, a link, or a directory without what is in it. Its header is
// made by hand: tar's own would look up the names of users of this machine.
func (a *archive) entry(name string, info fs.FileInfo) error {
	at := a.at.below(name)
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second)}
	switch info.Mode().Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return a.tar.WriteHeader(header)
	case fs.ModeSymlink:
		target, err := at.root.Readlink(at.name)
		if err != nil {
			return nil //nolint:nilerr // it has gone
		}
		header.Typeflag, header.Linkname = tar.TypeSymlink, target
		return a.tar.WriteHeader(header)
	case 0:
		return at.explain(a.regular(at, header))
	default:
		return nil
	}
}

func (a *archive) regular(at place, header *tar.Header) error {
	file, info, err := at.open()
	if err != nil {
		return err
	}
	defer file.Close()
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(a.tar, untilDone{a.ctx, io.LimitReader(file, info.Size())})
	if err == nil && n < info.Size() {
		return at.refuse(sdk.CodeConflict, "became shorter while it was read")
	}
	if errors.Is(err, io.ErrClosedPipe) {
		return a.ctx.Err()
	}
	return err
}
