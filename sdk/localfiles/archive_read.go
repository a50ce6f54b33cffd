package localfiles

import (
	"archive/tar"
	"bufio"
	"context"
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
	at, err := f.place(req.InstanceID, "directory", req.Directory)
	if err != nil {
		return nil, err
	}
	if len(req.Paths) > maxArchivePaths {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "paths", "must be at most %d", maxArchivePaths)
	}
	dir, err := at.open()
	if err != nil {
		return nil, err
	}
	a := &archiver{at: at, dir: dir}
	for _, name := range req.Paths {
		if err := a.want(name); err != nil {
			a.close()
			return nil, err
		}
	}
	reader, writer := io.Pipe()
	ended := make(chan struct{})
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(ctx)
	stop := context.AfterFunc(a.ctx, func() { writer.CloseWithError(a.ctx.Err()) })
	go func() {
		defer close(ended)
		defer a.close()
		writer.CloseWithError(at.explain(a.pack(writer)))
	}()
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

// archiver writes one archive.
type archiver struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one call
	at     place
	dir    *directory
	wanted []found // nothing for all that is in the directory
	tar    *tar.Writer
	buf    []byte
}

func (a *archiver) close() {
	for _, f := range a.wanted {
		f.dir.close()
	}
	a.dir.close()
}

// want finds a path below the directory.
func (a *archiver) want(asked string) error {
	full := path.Join(a.at.String(), asked)
	name, below := strings.CutPrefix(full, strings.TrimSuffix(a.at.String(), "/")+"/")
	if path.IsAbs(asked) || !below {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "paths", "%s: must be below %s", asked, a.at)
	}
	if _, _, err := a.at.files.split(a.at.instance, "paths", full); err != nil {
		return err
	}
	at := a.at.below(name)
	at.field = "paths"
	f := found{base: path.Base(name), name: name}
	var err error
	if f.dir, err = at.sub(a.dir, path.Dir(name)); err != nil {
		return at.explain(err)
	}
	if f.info, err = rightly(at, func() (info, error) { return f.dir.lstat(f.base) }); err != nil {
		f.dir.close()
		return at.explain(err)
	}
	a.wanted = append(a.wanted, f)
	return nil
}

// pack writes the archive. It reaches the reader in pieces of the size of a message.
func (a *archiver) pack(to io.Writer) error {
	buffered := bufio.NewWriterSize(to, chunkBytes)
	a.tar, a.buf = tar.NewWriter(buffered), make([]byte, copyBytes)
	if len(a.wanted) == 0 {
		if err := a.tree(a.dir, ""); err != nil {
			return err
		}
	}
	for _, f := range a.wanted {
		if err := a.entry(f); err != nil {
			return err
		}
		if !f.info.isDir() {
			continue
		}
		sub, err := a.at.sub(f.dir, f.base)
		if err == nil {
			err = a.tree(sub, f.name)
			sub.close()
		}
		if err != nil {
			return a.at.below(f.name).explain(err)
		}
	}
	if err := a.tar.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// tree writes what is in a directory, under a prefix.
func (a *archiver) tree(dir *directory, prefix string) error {
	w := &walker{ctx: a.ctx, at: a.at.below(prefix), depth: anyDepth, complete: true, visit: func(f found) error {
		f.name = path.Join(prefix, f.name)
		return a.entry(f)
	}}
	return w.walk(dir)
}

// entry writes a file, a link, or a directory without what is in it. Its header is made by
// hand: tar's own would look up the names of users.
func (a *archiver) entry(f found) error {
	at := a.at.below(f.name)
	header := &tar.Header{Name: f.name, Mode: int64(f.info.mode.Perm()), ModTime: f.info.modified.Truncate(time.Second)}
	switch f.info.mode.Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, f.name+"/"
	case fs.ModeSymlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, at.target(f)
		if header.Linkname == "" {
			return nil // it has gone
		}
	case 0:
		return at.explain(a.regular(at, f, header))
	default:
		return nil
	}
	return a.tar.WriteHeader(header)
}

func (a *archiver) regular(at place, f found, header *tar.Header) error {
	file, i, err := at.openRegular(f.dir, f.base)
	if err != nil {
		return err
	}
	defer file.Close()
	header.Typeflag, header.Size = tar.TypeReg, i.size
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{a.tar}, untilDone{a.ctx, io.LimitReader(file, i.size)}, a.buf)
	if err == nil && n < i.size {
		return at.refuse(sdk.CodeConflict, "became shorter while it was read")
	}
	return err
}
