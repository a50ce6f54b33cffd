package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// mounted is a volume that this process has mounted.
type mounted struct {
	id    string
	point string   // the mount point, which holds read-write and read-only
	root  *os.File // O_PATH, of the file system
	lock  *os.File
	users int
	size  int64
}

// Use is the use of a volume. It stays mounted until Release.
type Use struct {
	store *Store
	m     *mounted
}

// The directories of a mount point.
const (
	writableDir = "rw"
	readOnlyDir = "ro"
)

// Path is where the volume is mounted in the namespace of Options.InNamespace.
func (u *Use) Path(readOnly bool) string {
	if readOnly {
		return filepath.Join(u.m.point, readOnlyDir)
	}
	return filepath.Join(u.m.point, writableDir)
}

// Size of the volume in bytes.
func (u *Use) Size() int64 { return u.m.size }

// Root is the path of its root for this process alone, on any of its threads.
func (u *Use) Root() string { return rootPath(u.m.root) }

func rootPath(root *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(root.Fd())) }

// Use mounts a volume, if it is not mounted yet. The caller owes a Release. The error is
// CodeNotFound for one that does not exist, CodeConflict while it is copied or removed.
func (s *Store) Use(ctx context.Context, id string) (*Use, error) {
	if !Owns(id) {
		return nil, noSuchVolume("")
	}
	done, err := s.changing.Take(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.Lock()
	m := s.mounted[id]
	if m != nil {
		m.users++
	}
	s.mu.Unlock()
	if m != nil {
		return &Use{s, m}, nil
	}
	lock, err := lockPath(filepath.Join(s.dir(id), lockFile), unix.LOCK_SH)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noSuchVolume("")
	case errors.Is(err, errInUse):
		return nil, sdk.Errorf(sdk.CodeConflict, "the volume is being copied or removed; try again")
	case err != nil:
		return nil, err
	}
	r, err := readRecord(s.dir(id))
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	m = &mounted{id: id, size: r.Size, point: filepath.Join(s.o.MountDir, id), lock: lock, users: 1}
	if m.root, err = s.mount(s.dir(id), m.point); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a volume: %w", err), lock.Close())
	}
	s.mu.Lock()
	s.mounted[id] = m
	s.mu.Unlock()
	return &Use{s, m}, nil
}

// Release ends the use. The last one unmounts the volume.
func (u *Use) Release() {
	s := u.store
	// Nobody holds this for longer than a mount takes.
	done, err := s.changing.Take(context.Background(), u.m.id)
	if err != nil {
		return // never: the context does not end
	}
	defer done()
	s.mu.Lock()
	u.m.users--
	last := u.m.users == 0
	if last {
		delete(s.mounted, u.m.id)
	}
	s.mu.Unlock()
	if !last {
		return
	}
	used := usedOf(u.m.root)
	if err := s.unmount(u.m.point, u.m.root); err != nil {
		s.o.Logger.Warn("unmount a volume", "volume", u.m.id, "error", err)
	}
	// What was in use is for people.
	_ = os.WriteFile(filepath.Join(s.dir(u.m.id), usedFile), []byte(strconv.FormatInt(used, 10)), 0o600)
	_ = u.m.lock.Close()
}

// used is how many bytes a volume has in use: now if it is mounted here, else when it was
// last.
func (s *Store) used(id string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mounted[id]; m != nil {
		return usedOf(m.root)
	}
	content, _ := os.ReadFile(filepath.Join(s.dir(id), usedFile))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	return n
}

func usedOf(root *os.File) int64 {
	var st unix.Statfs_t
	if unix.Fstatfs(int(root.Fd()), &st) != nil {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// mount mounts the file system in a volume's directory at a point, and returns its root.
func (s *Store) mount(dir, point string) (root *os.File, err error) {
	writable, readOnly := filepath.Join(point, writableDir), filepath.Join(point, readOnlyDir)
	for _, path := range []string{writable, readOnly} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	device, err := attach(dir)
	if err != nil {
		return nil, err
	}
	defer device.Close() // the mount keeps it
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	err = s.o.InNamespace(func() (err error) {
		if err := unix.Mount(device.Name(), writable, "ext4", flags, "errors=remount-ro"); err != nil {
			return fmt.Errorf("mount the file system: %w", err)
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, unmount(writable))
			}
		}()
		if err := unix.Mount(writable, readOnly, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the file system a second time: %w", err)
		}
		if err = unix.Mount("", readOnly, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""); err == nil {
			root, err = openPath(writable)
		}
		if err != nil {
			err = errors.Join(err, unmount(readOnly))
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, removePoint(point))
	}
	return root, nil
}

// unmount undoes mount, and waits until all is on the disk.
func (s *Store) unmount(point string, root *os.File) error {
	file, err := os.Open(rootPath(root)) // syncfs takes no O_PATH
	if err == nil {
		err = errors.Join(unix.Syncfs(int(file.Fd())), file.Close())
	}
	err = errors.Join(err, root.Close())
	err = errors.Join(err, s.o.InNamespace(func() error {
		return errors.Join(unmount(filepath.Join(point, readOnlyDir)), unmount(filepath.Join(point, writableDir)))
	}))
	return errors.Join(err, removePoint(point))
}

func unmount(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", filepath.Base(path), err)
	}
	return nil
}

// removePoint removes a mount point with nothing mounted, and never what is in a mount.
func removePoint(point string) error {
	var errs []error
	for _, path := range []string{filepath.Join(point, writableDir), filepath.Join(point, readOnlyDir), point} {
		errs = append(errs, ignoreMissing(os.Remove(path)))
	}
	return errors.Join(errs...)
}

func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "volume"), nil
}

// mountOnce mounts what is in a directory that nobody else has, for the time of do.
func (s *Store) mountOnce(dir string, do func(root string) error) error {
	point := filepath.Join(s.o.MountDir, "once-"+randomWord())
	root, err := s.mount(dir, point)
	if err != nil {
		return err
	}
	err = do(rootPath(root))
	return errors.Join(err, s.unmount(point, root))
}
