package files

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

const maxArchivePaths = 1000

func (s *service) ReadArchive(req *providerv1.ReadArchiveRequest, stream grpc.ServerStreamingServer[providerv1.ReadArchiveResponse]) error {
	at, err := s.place("directory", req.GetDirectory())
	if err != nil {
		return err
	}
	if len(req.GetPaths()) > maxArchivePaths {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "paths", "must be at most %d", maxArchivePaths)
	}
	dir, err := at.openDirectory()
	if err != nil {
		return err
	}
	defer dir.Close()
	var wanted []found
	for _, name := range req.GetPaths() {
		f, err := s.below(at, dir, name)
		if err != nil {
			return err
		}
		defer f.dir.Close()
		wanted = append(wanted, f)
	}
	buffered := bufio.NewWriterSize(chunkWriter(func(chunk []byte) error {
		return stream.Send(&providerv1.ReadArchiveResponse{Data: chunk})
	}), filechunk.Size)
	a := &archiver{ctx: stream.Context(), at: at, tar: tar.NewWriter(buffered), buf: make([]byte, copyBytes)}
	if len(wanted) == 0 {
		err = a.tree(dir, "")
	}
	for _, f := range wanted {
		if err == nil {
			err = a.entry(f)
		}
		if err == nil && f.info.isDir() {
			var sub *directory
			if sub, err = subAsUser(dir, f.name); err == nil {
				err = a.tree(sub, f.name)
				_ = sub.Close()
			}
		}
	}
	if err == nil {
		err = a.tar.Close()
	}
	if err == nil {
		err = buffered.Flush()
	}
	return at.explain(err)
}

// below finds a path below a directory. The caller closes its directory.
func (s *service) below(at place, dir *directory, name string) (found, error) {
	p, err := s.place("paths", path.Join(at.String(), name))
	if err != nil {
		return found{}, err
	}
	within := place{root: at.String(), field: "paths"}
	var ok bool
	if within.name, ok = strings.CutPrefix(p.String(), at.String()+"/"); !ok {
		return found{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "paths", "must be below %s", at.String())
	}
	f := found{base: path.Base(within.name), name: within.name}
	if f.dir, err = subAsUser(dir, path.Dir(within.name)); err != nil {
		return found{}, within.explain(err)
	}
	err = asUser(func() (err error) {
		f.info, err = f.dir.lstat(f.base)
		return err
	})
	if err != nil {
		_ = f.dir.Close()
		return found{}, within.explain(err)
	}
	return f, nil
}

// chunkWriter sends what is written to it, in pieces of at most filechunk.Size.
type chunkWriter func([]byte) error

func (send chunkWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), filechunk.Size)
		if err := send(rest[:n]); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// archiver writes one archive.
type archiver struct {
	ctx context.Context
	at  place
	tar *tar.Writer
	buf []byte
}

// tree writes what is in a directory, under a prefix.
func (a *archiver) tree(dir *directory, prefix string) error {
	w := &walker{ctx: a.ctx, depth: anyDepth, complete: true, visit: func(f found) error {
		f.name = path.Join(prefix, f.name)
		return a.entry(f)
	}}
	return w.walk(dir)
}

// entry writes a file, a link, or a directory without what is in it. Its header
// is made by hand: tar's own would look up the names of users.
func (a *archiver) entry(f found) error {
	header := &tar.Header{Name: f.name, Mode: int64(f.info.mode.Perm()), ModTime: f.info.modified.Truncate(time.Second)}
	switch f.info.mode.Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, f.name+"/"
	case fs.ModeSymlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.target()
		if header.Linkname == "" {
			return nil // it has gone
		}
	case 0:
		return a.regular(f, header)
	default:
		return nil
	}
	return a.explain(f, a.tar.WriteHeader(header))
}

func (a *archiver) regular(f found, header *tar.Header) error {
	file, info, err := a.at.openRegular(f.dir, f.base)
	if err != nil {
		return a.explain(f, err)
	}
	defer file.Close()
	header.Typeflag, header.Size = tar.TypeReg, info.size
	if err := a.tar.WriteHeader(header); err != nil {
		return a.explain(f, err)
	}
	content := &untilDone{a.ctx, io.LimitReader(file, info.size)}
	n, err := io.CopyBuffer(struct{ io.Writer }{a.tar}, struct{ io.Reader }{content}, a.buf)
	if err == nil && n < info.size {
		return sdk.FieldErrorf(sdk.CodeConflict, a.at.field, "%s: became shorter while it was read", a.at.below(f.name))
	}
	return a.explain(f, err)
}

func (a *archiver) explain(f found, err error) error {
	if err == nil {
		return nil
	}
	return a.at.explainBelow(f.name, fmt.Errorf("%w", err))
}
