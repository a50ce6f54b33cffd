package files

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/refusal"
)

// explain turns the error of a system call about a place into a refusal. Errors
// that are refusals already, and those of a context, stay what they are.
func (p place) explain(err error) error { return p.explainBelow("", err) }

// explainBelow is explain for what is below the place.
func (p place) explainBelow(name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "deadline exceeded")
	}
	path := p.below(name)
	refuse := func(code, format string, args ...any) error {
		return refusal.New(code, p.field, "%s: %s", path, fmt.Sprintf(format, args...))
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case ok:
	case errors.Is(err, errTooDeep), errors.Is(err, errTooLarge), errors.Is(err, errTooManyWatches):
		return refuse(refusal.InvalidRequest, "%s", err)
	case errors.Is(err, errEscapes):
		return refuse(refusal.InvalidRequest, "leads out of %s through a symbolic link", p.root)
	default:
		return refuse(refusal.Internal, "%s", err)
	}
	switch errno {
	case unix.ENOENT:
		return refuse(refusal.NotFound, "no such file or directory")
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return refuse(refusal.NotAllowed, "code in the instance may not do that either: %s", errno)
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
		return p.full()
	case unix.ENOTDIR:
		return refuse(refusal.Conflict, "is not a directory, or is below something that is not")
	case unix.EISDIR:
		return refuse(refusal.Conflict, "is a directory")
	case unix.EEXIST:
		return refuse(refusal.Conflict, "exists already")
	case unix.ENOTEMPTY:
		return refuse(refusal.Conflict, "is a directory that is not empty")
	case unix.ENXIO, unix.ENODEV, unix.ETXTBSY, unix.EBUSY:
		return refuse(refusal.Conflict, "%s", errno)
	case unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL:
		return refuse(refusal.InvalidRequest, "%s", errno)
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN:
		return refuse(refusal.Unavailable, "the instance has too much to do at once: %s", errno)
	default:
		return refuse(refusal.Internal, "%s", errno)
	}
}

// full says that there is no room at a place, and how much there is in all.
func (p place) full() error {
	limit := ""
	var fs unix.Statfs_t
	if unix.Statfs(p.root, &fs) == nil && fs.Blocks > 0 {
		limit = fmt.Sprintf(": %s holds at most %d MiB", p.root, int64(fs.Blocks)*fs.Bsize>>20)
	}
	return refusal.New(refusal.QuotaExceeded, p.field, "the instance's disk is full%s", limit)
}
