package artifacts

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds on what is looked at.
const (
	maxEntries = 10_000
	maxDepth   = 32
)

// tree walks below a directory.
type tree struct {
	left int // entries that may still be looked at
}

func newTree() *tree { return &tree{left: maxEntries} }

// open opens something in a directory without following a link and without
// waiting for anything, such as the other end of a named pipe.
func open(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openDirectory opens a directory in a directory. gVisor follows a link in spite of
// O_NOFOLLOW if O_DIRECTORY is given too (its issue 14786), so what is there is opened
// without an effect on it and looked at first.
func openDirectory(dir *os.File, name string) (*os.File, error) {
	place, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(place)
	var info unix.Stat_t
	if err := unix.Fstat(place, &info); err != nil {
		return nil, err
	}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return nil, unix.ELOOP
	default:
		return nil, unix.ENOTDIR
	}
	fd, err := unix.Openat(place, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// descend opens the directory that a path leads to, which may be empty.
func descend(root, path string) (*os.File, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" {
			continue
		}
		next, err := openDirectory(dir, part)
		_ = dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// entries calls visit for each name in a directory, in no order.
func (t *tree) entries(dir *os.File, visit func(name string, info unix.Stat_t)) {
	for t.left > 0 {
		names, err := dir.Readdirnames(min(t.left, 256))
		for _, name := range names {
			t.left--
			var info unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW) == nil {
				visit(name, info)
			}
		}
		if err != nil {
			return
		}
	}
}

// files calls visit for every regular file below a directory.
func (t *tree) files(dir *os.File, prefix string, depth int, visit func(path string, info unix.Stat_t)) {
	if depth > maxDepth {
		return
	}
	t.entries(dir, func(name string, info unix.Stat_t) {
		switch info.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			visit(prefix+name, info)
		case unix.S_IFDIR:
			if next, err := openDirectory(dir, name); err == nil {
				t.files(next, prefix+name+"/", depth+1, visit)
				_ = next.Close()
			}
		}
	})
}

func isLink(err error) bool { return errors.Is(err, unix.ELOOP) }
