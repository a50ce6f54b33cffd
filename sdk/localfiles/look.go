package localfiles

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/filetext"
)

// StatFile implements sdk.Files.
func (f *Files) StatFile(_ context.Context, instanceID, name string) (sdk.FileInfo, error) {
	at, err := f.place(instanceID, "path", name)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	dir, base, err := at.locate(false)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	defer dir.close()
	return at.lstat(dir, base)
}

// lstat describes what has a name in a directory.
func (at place) lstat(dir *directory, name string) (sdk.FileInfo, error) {
	target := ""
	i, err := rightly(at, func() (info, error) {
		i, err := dir.lstat(name)
		if err == nil && i.isSymlink() {
			target, err = dir.readlink(name)
		}
		return i, err
	})
	if err != nil {
		return sdk.FileInfo{}, at.explain(err)
	}
	return at.describe(i, target), nil
}

// describe says what lstat said about the place. target is that of a symbolic link.
func (at place) describe(i info, target string) sdk.FileInfo {
	d := sdk.FileInfo{Path: valid(at.String()), Type: sdk.FileOther, Mode: i.mode.Perm(), ModifiedAt: i.modified}
	switch i.mode.Type() {
	case 0:
		d.Type, d.Size = sdk.FileRegular, i.size
	case fs.ModeDir:
		d.Type = sdk.FileDirectory
	case fs.ModeSymlink:
		d.Type, d.Target = sdk.FileSymlink, valid(target)
	}
	return d
}

// valid is a name as it is shown.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// ListFiles implements sdk.Files.
func (f *Files) ListFiles(ctx context.Context, req sdk.ListFilesRequest, pass func([]sdk.FileInfo) error) (truncated bool, err error) {
	at, err := f.place(req.InstanceID, "path", req.Path)
	if err != nil {
		return false, err
	}
	selects, err := filetext.Glob(req.Glob)
	if err != nil {
		return false, err
	}
	dir, err := at.open()
	if err != nil {
		return false, err
	}
	defer dir.close()
	limit := min(max(req.Limit, 1), maxResults)
	var batch []sdk.FileInfo
	w := &walker{ctx: ctx, at: at, depth: max(req.Depth, 1), visit: func(f found) error {
		entry := at.below(f.name)
		switch {
		case !selects.Match(f.name):
			return nil
		case limit == 0, len(entry.String()) > maxPath:
			truncated = true
			return fs.SkipAll
		}
		limit--
		batch = append(batch, entry.describe(f.info, at.target(f)))
		if len(batch) < listBatch {
			return nil
		}
		err := pass(batch)
		batch = nil
		return err
	}}
	if err := w.walk(dir); err != nil {
		return false, at.explain(err)
	}
	if len(batch) > 0 {
		err = pass(batch)
	}
	return truncated || w.skipped, err
}

// target is where a symbolic link points, as it is written there; nothing if it has gone,
// or is none.
func (at place) target(f found) string {
	if !f.info.isSymlink() {
		return ""
	}
	target, _ := rightly(at, func() (string, error) { return f.dir.readlink(f.base) })
	return target
}

// ReadFile implements sdk.Files.
func (f *Files) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	at, err := f.place(req.InstanceID, "path", req.Path)
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	dir, base, err := at.locate(true)
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	defer dir.close()
	file, i, err := at.openRegular(dir, base)
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	offset, length := section(i.size, req.Offset, req.Length)
	return at.describe(i, ""), &opened{untilDone{ctx, io.NewSectionReader(file, offset, length)}, at, file}, nil
}

// opened is content that is being read.
type opened struct {
	untilDone
	at place
	io.Closer
}

func (o *opened) Read(p []byte) (int, error) {
	n, err := o.untilDone.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.at.explain(err)
	}
	return n, err
}

// section returns which bytes of a file of a size are meant. What it grows by while it is
// read is none of them.
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

// openRegular opens a regular file in a directory for reading, and nothing else. The place
// is what errors name.
func (at place) openRegular(dir *directory, name string) (*os.File, info, error) {
	file, err := rightly(at, func() (*os.File, error) { return dir.open(name, unix.O_RDONLY, 0) })
	if err != nil {
		return nil, info{}, at.explain(err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(file.Fd()), &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = at.refuse(sdk.CodeConflict, "is not a regular file")
	}
	if err != nil {
		_ = file.Close()
		return nil, info{}, at.explain(err)
	}
	return file, infoOf(&st), nil
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
