package localfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// directory is an open directory. Its methods make one system call each, with the
// rights of their caller, for one name in it: no slashes, no "..". None follows a
// symbolic link.
type directory struct{ fd int }

// openRoot opens a directory by its path, which the caller trusts.
func openRoot(path string) (*directory, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &directory{fd}, nil
}

// close ends it. A nil directory is closed.
func (d *directory) close() {
	if d == nil || d.fd < 0 {
		return
	}
	_ = unix.Close(d.fd)
	d.fd = -1
}

// sub opens a directory in it. O_PATH opens whatever is there without an effect
// on it, and what it was is looked at afterwards: gVisor follows a link in spite
// of O_NOFOLLOW if O_DIRECTORY is given too (its issue 14786), and without either
// a pipe would wait for its other end.
func (d *directory) sub(name string) (*directory, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &directory{fd}, nil
}

// duplicate opens it a second time.
func (d *directory) duplicate() (*directory, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &directory{fd}, nil
}

// entries opens the directory itself for reading.
func (d *directory) entries() (*os.File, error) {
	fd, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "directory"), nil
}

// open opens a file, without waiting for the other end of a pipe.
func (d *directory) open(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d *directory) lstat(name string) (info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return info{}, err
	}
	return infoOf(&st), nil
}

func (d *directory) readlink(name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(d.fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func (d *directory) symlink(target, name string) error { return unix.Symlinkat(target, d.fd, name) }

func (d *directory) mkdir(name string) error { return unix.Mkdirat(d.fd, name, 0o755) }

// chmod sets the mode of a file of any kind that is no link. It holds the very file that it
// changes: a link that code puts in its place meanwhile is not followed. O_PATH opens also
// what may not be read.
func (d *directory) chmod(name string, mode fs.FileMode) error {
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
	return chmodOpen(fd, mode)
}

// chmodOpen sets the mode of what is open, if only by O_PATH.
func chmodOpen(fd int, mode fs.FileMode) error {
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), uint32(mode.Perm()))
}

// setTime sets when a file was modified.
func (d *directory) setTime(name string, at time.Time) error {
	when := unix.NsecToTimespec(at.UnixNano())
	return unix.UtimesNanoAt(d.fd, name, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW)
}

// rename moves a name to another directory. Flags are those of renameat2.
func (d *directory) rename(name string, to *directory, newName string, flags uint) error {
	return unix.Renameat2(d.fd, name, to.fd, newName, flags)
}

// remove removes a file, a link or an empty directory.
func (d *directory) remove(name string) error {
	err := unix.Unlinkat(d.fd, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		// Of the two the directory's error says more, unless there is none.
		if dirErr := unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR); !errors.Is(dirErr, unix.ENOTDIR) {
			return dirErr
		}
	}
	return err
}

// removeAll removes what has a name, with all that is in it, also where code has taken
// itself the right to do so.
func (d *directory) removeAll(ctx context.Context, name string, depth int) error {
	err := d.remove(name)
	switch {
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return err
	case depth == 0:
		return errTooDeep
	}
	sub, err := d.sub(name)
	if err != nil {
		return err
	}
	defer sub.close()
	var st unix.Stat_t
	if err := unix.Fstat(sub.fd, &st); err == nil && st.Mode&0o700 != 0o700 {
		_ = chmodOpen(sub.fd, fs.FileMode(st.Mode)|0o700)
	}
	file, err := sub.entries()
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		names, err := file.Readdirnames(1000)
		for _, entry := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := sub.removeAll(ctx, entry, depth-1); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return d.remove(name)
		case err != nil:
			return err
		}
		// What was removed may have moved what is behind it.
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// info is what lstat says of a file.
type info struct {
	mode     fs.FileMode // type and permission bits
	size     int64
	modified time.Time
}

func (i info) isDir() bool     { return i.mode.IsDir() }
func (i info) isRegular() bool { return i.mode.IsRegular() }
func (i info) isSymlink() bool { return i.mode.Type() == fs.ModeSymlink }

func infoOf(st *unix.Stat_t) info {
	i := info{mode: fs.FileMode(st.Mode & 0o777), size: st.Size, modified: time.Unix(st.Mtim.Unix())}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		i.mode |= fs.ModeDir
	case unix.S_IFLNK:
		i.mode |= fs.ModeSymlink
	default:
		i.mode |= fs.ModeIrregular
	}
	return i
}

// names returns the names in a directory in their order, without drafts. With
// errTooLarge come the first that were met.
func (at place) names(dir *directory) ([]string, error) {
	file, err := rightly(at, dir.entries)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := file.Readdirnames(maxDirectory + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	err = nil
	if len(names) > maxDirectory {
		names, err = names[:maxDirectory], errTooLarge
	}
	names = slices.DeleteFunc(names, isDraft)
	slices.Sort(names)
	return names, err
}
