// Package scratch makes the directories in which tests keep the state and the audit
// log of brokers. They are in memory where this machine has a file system for that:
// a test must not fail because a disk is slow, nor wait for it. Tests whose subject
// is the disk use the TempDir of testing instead.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// memory is where Linux has a file system in memory that everybody may use.
	memory = "/dev/shm"
	// leastRoom is how many bytes must be free there: those of several brokers with
	// their executables and sandboxes.
	leastRoom = 2 << 30
	// prefix of the directories. They are short: the path of a socket has at most
	// 107 bytes.
	prefix = "sbt"
)

// Dir makes a directory that this user alone may enter and that is removed when the
// test ends. What tests left there that were killed is removed first.
func Dir(t testing.TB) string {
	t.Helper()
	base := baseOf(memory)
	sweepOnce(base)
	dir, err := newHeld(base)
	if err != nil {
		t.Fatalf("make a directory for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := dir.remove(); err != nil {
			t.Errorf("remove the directory of the test: %v", err)
		}
	})
	return dir.path
}

// baseOf is where directories are made: in memory if programs can be run there and
// there is room, and else where temporary files are.
func baseOf(memory string) string {
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || fs.Flags&(unix.ST_NOEXEC|unix.ST_RDONLY) != 0 ||
		fs.Bavail*uint64(fs.Bsize) < leastRoom || unix.Access(memory, unix.W_OK|unix.X_OK) != nil {
		return os.TempDir()
	}
	return memory
}

// held is a directory with the lock that says that its test still runs.
type held struct {
	path string
	lock *os.File
}

func newHeld(base string) (held, error) {
	for {
		path, err := os.MkdirTemp(base, prefix)
		if err != nil {
			return held{}, err
		}
		lock, err := tryLock(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
			continue // another process has just taken it for one that was left
		}
		if err != nil {
			return held{}, errors.Join(err, os.Remove(path))
		}
		if _, err := os.Lstat(path); err != nil {
			_ = lock.Close()
			continue
		}
		return held{path, lock}, nil
	}
}

func (d held) remove() error { return errors.Join(os.RemoveAll(d.path), d.lock.Close()) }

// tryLock takes the lock of a directory. The kernel frees it when the process ends,
// however it ends.
func tryLock(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return dir, nil
}

var swept sync.Once

func sweepOnce(base string) { swept.Do(func() { sweep(base) }) }

// sweep removes directories whose test was killed. What resists stays.
func sweep(base string) {
	left, _ := filepath.Glob(filepath.Join(base, prefix+"[0-9]*"))
	for _, path := range left {
		if lock, err := tryLock(path); err == nil {
			_ = held{path, lock}.remove()
		}
	}
}
