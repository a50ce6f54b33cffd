package files

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"
)

// explain turns the error of a system call about a place into an error of
// the SDK.
func (p place) explain(err error) error { return p.explainBelow("", err) }

// explainBelow is explain for what is below the place.
func (p place) explainBelow(name string, err error) error {
	if err == nil {
		return nil
	}
	if explained(err) {
		return err
	}
	path := p.below(name)
	refuse := func(code sdk.Code, format string, args ...any) error {
		return sdk.FieldErrorf(code, p.field, "%s: %s", path, fmt.Sprintf(format, args...))
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case ok:
	case errors.Is(err, errTooDeep), errors.Is(err, errTooLarge), errors.Is(err, errTooManyWatches):
		return refuse(sdk.CodeInvalidRequest, "%s", err)
	case errors.Is(err, errEscapes):
		return refuse(sdk.CodeInvalidRequest, "leads out of %s through a symbolic link", p.root)
	default:
		return refuse(sdk.CodeInternal, "%s", err)
	}
	switch errno {
	case unix.ENOENT:
		return refuse(sdk.CodeNotFound, "no such file or directory")
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return refuse(sdk.CodeNotAllowed, "code in the instance may not do that either: %s", errno)
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
		return p.full()
	case unix.ENOTDIR:
		return refuse(sdk.CodeConflict, "is not a directory, or is below something that is not")
	case unix.EISDIR:
		return refuse(sdk.CodeConflict, "is a directory")
	case unix.EEXIST:
		return refuse(sdk.CodeConflict, "exists already")
	case unix.ENOTEMPTY:
		return refuse(sdk.CodeConflict, "is a directory that is not empty")
	case unix.ENXIO, unix.ENODEV, unix.ETXTBSY, unix.EBUSY:
		return refuse(sdk.CodeConflict, "%s", errno)
	case unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL:
		return refuse(sdk.CodeInvalidRequest, "%s", errno)
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN:
		return refuse(sdk.CodeUnavailable, "the instance has too much to do at once: %s", errno)
	default:
		return refuse(sdk.CodeInternal, "%s", errno)
	}
}

// full says that there is no room at a place, and how much there is in all.
func (p place) full() error {
	limit := ""
	var fs unix.Statfs_t
	if unix.Statfs(p.root, &fs) == nil && fs.Blocks > 0 {
		limit = fmt.Sprintf(": %s holds at most %d MiB", p.root, int64(fs.Blocks)*fs.Bsize>>20)
	}
	return sdk.FieldErrorf(sdk.CodeQuotaExceeded, p.field, "the instance's disk is full%s", limit)
}

// explained reports whether an error says already what its caller shall hear: it is one of
// the SDK, of a context, or of the call's own stream.
func explained(err error) bool {
	_, coded := errors.AsType[*sdk.Error](err)
	_, ofStream := status.FromError(err)
	return coded || ofStream || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
