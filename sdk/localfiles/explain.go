package localfiles

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (at place) refuse(code sdk.Code, format string, args ...any) error {
	return sdk.FieldErrorf(code, at.field, "%s: "+format, append([]any{at}, args...)...)
}

// explain turns the error of a call of the system into what an agent can do about. It
// names the path that the agent knows and none of this machine. Errors of the SDK and
// those of a context stay what they are.
func (at place) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return err
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		switch {
		case errors.Is(err, errTooDeep), errors.Is(err, errTooLarge), errors.Is(err, errTooManyWatches):
			return at.refuse(sdk.CodeInvalidRequest, "%w", err)
		case errors.Is(err, fs.ErrNotExist):
			return at.refuse(sdk.CodeNotFound, "no such file or directory")
		}
		if _, ok := errors.AsType[*fs.PathError](err); ok || errors.Is(err, errEscapes) {
			return at.refuse(sdk.CodeInvalidRequest, "leads out of %s through a symbolic link", at.top) // os.Root itself
		}
		return err
	}
	switch errno {
	case syscall.ENOENT:
		return at.refuse(sdk.CodeNotFound, "no such file or directory")
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return at.refuse(sdk.CodeNotAllowed, "code in the instance may not do that either: %w", errno)
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		return at.refuse(sdk.CodeQuotaExceeded, "the instance's disk is full")
	case syscall.ENOTDIR:
		return at.refuse(sdk.CodeConflict, "is not a directory, or is below something that is not")
	case syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL:
		return at.refuse(sdk.CodeInvalidRequest, "%w", errno)
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN:
		return at.refuse(sdk.CodeUnavailable, "there is too much to do at once: %w", errno)
	default: // something is in the way: EISDIR, EEXIST, ENOTEMPTY, ENXIO, ETXTBSY, …
		return at.refuse(sdk.CodeConflict, "%w", errno)
	}
}

// inTheWay says that something is where a regular file should be.
func (at place) inTheWay(old fs.FileInfo) error {
	switch old.Mode().Type() {
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
