package files

import (
	"context"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *service) SetFileMode(_ context.Context, req *providerv1.SetFileModeRequest) (*providerv1.SetFileModeResponse, error) {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return nil, err
	}
	dir, base, err := at.locate(true)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if base == "." {
		return nil, at.refuseRoot()
	}
	err = asUser(func() error { return dir.setMode(base, fs.FileMode(req.GetMode()).Perm()) })
	if err != nil {
		return nil, at.explain(err)
	}
	info, err := at.lstat(dir, base)
	if err != nil {
		return nil, err
	}
	return &providerv1.SetFileModeResponse{File: info}, nil
}

// setMode holds the very file that it changes: a link that code puts in its place
// meanwhile is not followed. O_PATH opens also what may not be read.
func (d *directory) setMode(name string, mode fs.FileMode) error {
	fd, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), uint32(mode.Perm()))
}
