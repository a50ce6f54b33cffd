package files

import (
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// describe puts what lstat said about a file into the answer's form. target is
// that of a symbolic link.
func describe(path string, i info, target string) *providerv1.FileInfo {
	f := &providerv1.FileInfo{
		Path: strings.ToValidUTF8(path, "\uFFFD"), Type: "other", Mode: uint32(i.mode.Perm()),
		ModifiedAt: timestamppb.New(i.modified),
	}
	switch i.mode.Type() {
	case 0:
		f.Type, f.Size = "file", i.size
	case fs.ModeDir:
		f.Type = "directory"
	case fs.ModeSymlink:
		f.Type, f.Target = "symlink", strings.ToValidUTF8(target, "\uFFFD")
	}
	return f
}

// lstat describes what has a name in a directory.
func (p place) lstat(dir *directory, name string) (*providerv1.FileInfo, error) {
	var i info
	target := ""
	err := asUser(func() (err error) {
		if i, err = dir.lstat(name); err == nil && i.isSymlink() {
			target, err = dir.readlink(name)
		}
		return err
	})
	if err != nil {
		return nil, p.explain(err)
	}
	return describe(p.String(), i, target), nil
}

// openRegular opens a regular file for reading, and nothing else.
func (p place) openRegular(dir *directory, name string) (*os.File, info, error) {
	var file *os.File
	err := asUser(func() (err error) {
		file, err = dir.open(name, unix.O_RDONLY, 0)
		return err
	})
	if err != nil {
		return nil, info{}, p.explain(err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(file.Fd()), &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = sdk.FieldErrorf(sdk.CodeConflict, p.field, "%s: is not a regular file", p.String())
	}
	if err != nil {
		_ = file.Close()
		return nil, info{}, p.explain(err)
	}
	return file, infoOf(&st), nil
}
