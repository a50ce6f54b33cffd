package files

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"golang.org/x/sys/unix"
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

// roomBytes is how much is written between two looks whether memory is scarce.
const roomBytes = 8 << 20

// draft is a regular file in the making.
type draft struct {
	at   place
	dir  *directory
	name string
	file *os.File
	room func() error

	written int64
}

// newDraft makes an empty file in the directory dir. The caller must end it with
// commit or discard.
func (s *service) newDraft(at place, dir *directory) (*draft, error) {
	d := &draft{at: at, dir: dir, name: newDraftName(), room: s.options.Room}
	err := asUser(func() (err error) {
		d.file, err = dir.open(d.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return nil, at.explain(err)
	}
	return d, d.askRoom()
}

func (d *draft) askRoom() error {
	if err := d.room(); err != nil {
		return sdk.FieldErrorf(sdk.CodeQuotaExceeded, d.at.field, "%s", err)
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

// fill copies content to its end, by way of buf.
func (d *draft) fill(content io.Reader, buf []byte) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{d}, struct{ io.Reader }{content}, buf)
	return err
}

// commit gives the file its mode and its name, over a regular file of that name.
// Mode 0 stands for that of the file that is replaced, else 0644.
func (d *draft) commit(name string, mode fs.FileMode) error {
	err := asUser(func() error {
		old, err := d.dir.lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !old.isRegular():
			return d.at.inTheWay(old)
		case mode == 0:
			mode = old.mode.Perm()
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
	_ = asUser(func() error { return d.dir.remove(d.name) })
}

// inTheWay says that something is where a regular file should be.
func (p place) inTheWay(old info) error {
	kind := "a socket, a pipe or a device"
	switch old.mode.Type() {
	case fs.ModeDir:
		kind = "a directory"
	case fs.ModeSymlink:
		kind = "a symbolic link"
	case 0:
		return p.explain(unix.EEXIST)
	}
	return sdk.FieldErrorf(sdk.CodeConflict, p.field, "%s: %s is in the way", p.String(), kind)
}
