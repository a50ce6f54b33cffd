package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
)

const (
	runtimePrefix = "sandbox-broker-"
	// makingPrefix marks a directory that is not locked yet.
	makingPrefix = ".sandbox-broker-new-"
	// maxSocketPath is the length of sun_path without its final zero.
	maxSocketPath = 107
	// socketRoom is what go-plugin puts below our directory:
	// /plugin-dirNNNNNNNNNN/pluginNNNNNNNNNN.
	socketRoom = len("/plugin-dir4294967295/plugin4294967295")
)

// runtimeDir is the private directory of one broker run for its plugins'
// sockets. A lock held on it tells later brokers that this one lives.
type runtimeDir struct {
	path string
	mu   sync.Mutex // guards lock
	lock *os.File
}

// newRuntimeDir ends and removes what dead brokers left below base and makes a directory
// with mode 0700. An empty base means the user's or the system's place for such
// things.
func newRuntimeDir(base string) (*runtimeDir, error) {
	if base == "" {
		base = defaultRuntimeBase()
	}
	if err := sweep(base); err != nil {
		return nil, fmt.Errorf("sweep %s: %w", base, err)
	}
	making, err := os.MkdirTemp(base, makingPrefix) // mode 0700
	if err != nil {
		return nil, fmt.Errorf("make a directory for plugin sockets: %w", err)
	}
	path := filepath.Join(base, runtimePrefix+strings.TrimPrefix(filepath.Base(making), makingPrefix))
	if len(path)+socketRoom > maxSocketPath {
		return nil, errors.Join(os.Remove(making), fmt.Errorf(
			"the runtime directory %s is too long: socket paths below it would exceed %d bytes; choose one of at most %d bytes",
			base, maxSocketPath, maxSocketPath-socketRoom-(len(path)-len(base))))
	}
	lock, err := lockDir(making)
	if err == nil {
		err = os.Rename(making, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for plugin sockets: %w", err), os.Remove(making))
	}
	return &runtimeDir{path: path, lock: lock}, nil
}

func (d *runtimeDir) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// keepInPlace makes the directory again, and takes its lock, if it is not there.
func (d *runtimeDir) keepInPlace() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	held, err := d.lock.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Lstat(d.path); err == nil && os.SameFile(held, there) {
		return nil
	}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return fmt.Errorf("make the directory for plugin sockets again: %w", err)
	}
	lock, err := lockDir(d.path)
	if err != nil {
		return err
	}
	old := d.lock
	d.lock = lock
	return old.Close()
}

// lockDir takes the lock of a directory; the kernel frees it when the process
// that holds it ends, however it ends.
func lockDir(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// sweep removes the directories of our user below base whose broker is gone, once nothing
// of its plugins is left: the state directories that they had become another broker's. One
// that cannot be examined is left alone.
func sweep(base string) error {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), runtimePrefix) {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != unix.Geteuid() {
			continue
		}
		path := filepath.Join(base, entry.Name())
		lock, err := lockDir(path)
		if err != nil {
			continue // its broker lives
		}
		watchdog.EndLeftBehind(path)
		_ = os.RemoveAll(path) // what resists is no reason not to start
		lock.Close()
	}
	return nil
}

// defaultRuntimeBase prefers a file system that a reboot clears and takes no
// path that is too long for sockets: TMPDIR often is.
func defaultRuntimeBase() string {
	room := maxSocketPath - socketRoom - len("/"+runtimePrefix+"4294967295")
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/run", os.TempDir()} {
		if filepath.IsAbs(dir) && len(dir) <= room && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			return dir
		}
	}
	return "/tmp"
}
