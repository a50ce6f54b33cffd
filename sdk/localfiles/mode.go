package localfiles

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.FileModeSetter = (*Files)(nil)

// SetFileMode implements sdk.FileModeSetter.
func (f *Files) SetFileMode(_ context.Context, instanceID, name string, mode fs.FileMode) (sdk.FileInfo, error) {
	at, err := f.at(instanceID, "path", name, true)
	return using(at, err, func(at place) (sdk.FileInfo, error) {
		if at.name == "." {
			return sdk.FileInfo{}, at.refuseTop()
		}
		if err := at.setMode(mode); err != nil {
			return sdk.FileInfo{}, err
		}
		return at.stat()
	})
}

// setMode holds the very file that it changes: a link that code puts in its place
// meanwhile is not followed. O_PATH opens also what may not be read.
func (at place) setMode(mode fs.FileMode) error {
	file, err := at.root.OpenFile(at.name, unix.O_PATH|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return syscall.ELOOP
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), mode.Perm())
}
