package localfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	errEscapes        = errors.New("leads out through a symbolic link")
	errTooDeep        = fmt.Errorf("there are more than %d directories in one another", maxDepth)
	errTooLarge       = fmt.Errorf("a directory has more than %d entries", maxDirectory)
	errTooManyWatches = errors.New("there are too many directories to watch")
)

func (at place) refuse(code sdk.Code, format string, args ...any) error {
	return sdk.FieldErrorf(code, at.field, "%s: "+format, append([]any{at}, args...)...)
}

// explained reports whether an error says already what its caller shall hear: it is one of
// the SDK or of a context.
func explained(err error) bool {
	_, coded := errors.AsType[*sdk.Error](err)
	return coded || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// explain turns the error of a system call into what an agent can do about. It names the
// path that the agent knows and none of this machine. What is no error of the system, such
// as that of a callback, stays what it is.
func (at place) explain(err error) error {
	if err == nil || explained(err) {
		return err
	}
	errno, ok := errors.AsType[unix.Errno](err)
	switch {
	case ok:
	case errors.Is(err, errTooDeep), errors.Is(err, errTooLarge), errors.Is(err, errTooManyWatches):
		return at.refuse(sdk.CodeInvalidRequest, "%w", err)
	case errors.Is(err, errEscapes):
		return at.refuse(sdk.CodeInvalidRequest, "leads out of %s through a symbolic link", at.top)
	default:
		return err
	}
	switch errno {
	case unix.ENOENT:
		return at.refuse(sdk.CodeNotFound, "no such file or directory")
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return at.refuse(sdk.CodeNotAllowed, "code in the instance may not do that either: %w", errno)
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
		return at.full()
	case unix.ENOTDIR:
		return at.refuse(sdk.CodeConflict, "is not a directory, or is below something that is not")
	case unix.EISDIR:
		return at.refuse(sdk.CodeConflict, "is a directory")
	case unix.EEXIST:
		return at.refuse(sdk.CodeConflict, "exists already")
	case unix.ENOTEMPTY:
		return at.refuse(sdk.CodeConflict, "is a directory that is not empty")
	case unix.ENXIO, unix.ENODEV, unix.ETXTBSY, unix.EBUSY:
		return at.refuse(sdk.CodeConflict, "%w", errno)
	case unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL:
		return at.refuse(sdk.CodeInvalidRequest, "%w", errno)
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN:
		return at.refuse(sdk.CodeUnavailable, "the instance has too much to do at once: %w", errno)
	default:
		return at.refuse(sdk.CodeInternal, "%w", errno)
	}
}

// full says that there is no room at a place, and how much there is in all.
func (at place) full() error {
	limit := ""
	var disk unix.Statfs_t
	if unix.Statfs(at.path, &disk) == nil && disk.Blocks > 0 {
		limit = fmt.Sprintf(": %s holds at most %d MiB", at.top, int64(disk.Blocks)*disk.Bsize>>20)
	}
	return sdk.FieldErrorf(sdk.CodeQuotaExceeded, at.field, "the instance's disk is full%s", limit)
}

// inTheWay says that something is where a regular file should be.
func (at place) inTheWay(old info) error {
	switch old.mode.Type() {
	case 0:
		return at.refuse(sdk.CodeConflict, "exists already")
	case fs.ModeDir:
		return at.refuse(sdk.CodeConflict, "a directory is in the way")
	case fs.ModeSymlink:
		return at.refuse(sdk.CodeConflict, "a symbolic link is in the way")
	default:
		return at.refuse(sdk.CodeConflict, "a socket, a pipe or a device is in the way")
	}
}
