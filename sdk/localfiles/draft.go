package localfiles

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A draft is what is not finished yet, beside its final name, so that it appears
// whole. Walks and watches do not show drafts; code sees them.
const (
	draftPrefix = ".sandbox-draft-"
	draftLength = len(draftPrefix) + 26
)

func newDraftName() string { return draftPrefix + rand.Text() }

func isDraft(name string) bool {
	return len(name) == draftLength && strings.HasPrefix(name, draftPrefix)
}

// roomBytes is how much is written between two questions whether there is room.
const roomBytes = 8 << 20

// draft is a regular file in the making.
type draft struct {
	at   place
	dir  *directory
	name string
	file *os.File

	written int64
}

// newDraft makes an empty file in the directory dir. The caller must end it with commit or
// discard.
func (at place) newDraft(dir *directory) (*draft, error) {
	d := &draft{at: at, dir: dir, name: newDraftName()}
	var err error
	d.file, err = rightly(at, func() (*os.File, error) { return dir.open(d.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600) })
	if err != nil {
		return nil, at.explain(err)
	}
	return d, d.askRoom()
}

func (d *draft) askRoom() error {
	if err := d.at.files.options.Room(); err != nil {
		return sdk.FieldErrorf(sdk.CodeQuotaExceeded, d.at.field, "%w", err)
	}
	return nil
}

// Write appends to the file.
func (d *draft) Write(p []byte) (int, error) {
	n, err := d.file.Write(p)
	if err == nil && d.written/roomBytes != (d.written+int64(n))/roomBytes {
		err = d.askRoom()
	}
	d.written += int64(n)
	return n, d.at.explain(err)
}

// fill copies content to its end, by way of buf. An error of content stays what it is.
func (d *draft) fill(content io.Reader, buf []byte) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{d}, struct{ io.Reader }{content}, buf)
	return err
}

// commit gives the file its mode and its name, over a regular file of that name. Mode 0
// stands for that of the file that is replaced, else 0644.
func (d *draft) commit(name string, mode fs.FileMode) error {
	err := d.at.as(func() error {
		old, err := d.dir.lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !old.isRegular():
			return d.at.inTheWay(old)
		case mode == 0:
			mode = old.mode
		}
		if mode == 0 {
			mode = 0o644
		}
		if err := d.file.Chmod(mode.Perm()); err != nil {
			return err
		}
		return d.dir.rename(d.name, d.dir, name, 0)
	})
	if err != nil {
		return d.at.explain(err)
	}
	d.name = ""
	return d.at.explain(d.file.Close())
}

// discard removes the file unless it was committed.
func (d *draft) discard() {
	if d == nil || d.name == "" {
		return
	}
	_ = d.file.Close()
	_ = d.at.as(func() error { return d.dir.remove(d.name) })
}

// WriteFile implements sdk.Files.
func (f *Files) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	at, err := f.place(req.InstanceID, "path", req.Path)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	dir, base, err := at.parent(req.MakeParents)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	defer dir.close()
	d, err := at.newDraft(dir)
	defer d.discard()
	if err == nil {
		err = d.fill(untilDone{ctx, content}, make([]byte, chunkBytes))
	}
	if err == nil {
		err = d.commit(base, req.Mode.Perm())
	}
	if err != nil {
		return sdk.FileInfo{}, err
	}
	return at.lstat(dir, base)
}
