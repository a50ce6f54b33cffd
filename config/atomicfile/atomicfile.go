// Package atomicfile replaces the content of a file in one step: who reads it
// meanwhile gets the old content or the new, and after a loss of power there is
// one of the two. Mode, owner and links to the file stay as they are.
//
// Not here: what is written into the file.
package atomicfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

var (
	// ErrChanged says that the file is not what it was when it was read.
	ErrChanged = errors.New("the file was changed meanwhile")
	// ErrReadOnly says that the file cannot be replaced where it is.
	ErrReadOnly = errors.New("the file cannot be changed here")
)

// Replace writes content in place of the file at path, which must be there and
// have the SHA-256 sum that is given. A link is followed, and stays. The errors
// are ErrChanged, ErrReadOnly with the reason, or those of the system.
func Replace(path string, content []byte, expected [sha256.Size]byte) error {
	target, info, err := find(path)
	if err != nil {
		return err
	}
	draft, err := ondisk.Create(target, info.Mode().Perm())
	if err != nil {
		return readOnly(err)
	}
	defer draft.Cleanup()
	if err := fill(draft, content, info); err != nil {
		return err
	}
	// As late as can be.
	current, err := sum(target)
	if err != nil {
		return err
	}
	if current != expected {
		return ErrChanged
	}
	err = draft.Commit()
	if _, notReplaced := errors.AsType[*os.LinkError](err); !notReplaced {
		return err
	}
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("%w: it is mounted by itself; mount its directory instead", ErrReadOnly)
	}
	return readOnly(err)
}

// Check finds out, without touching anything, whether Replace would refuse the file
// at path as one that cannot be changed. It cannot see everything: a file that is a
// mount of its own only shows when it is replaced.
func Check(path string) error {
	target, info, err := find(path)
	if err != nil {
		return err
	}
	if err := unix.Access(filepath.Dir(target), unix.W_OK|unix.X_OK); err != nil {
		return readOnly(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to another user", ErrReadOnly)
	}
	return nil
}

// find follows the links to a file that may be replaced.
func find(path string) (target string, info os.FileInfo, err error) {
	if target, err = filepath.EvalSymlinks(path); err != nil {
		return "", nil, err
	}
	if err := refuseVolume(filepath.Dir(path), filepath.Dir(filepath.Dir(target))); err != nil {
		return "", nil, err
	}
	if info, err = os.Stat(target); err != nil {
		return "", nil, err
	}
	if !info.Mode().IsRegular() {
		return "", nil, fmt.Errorf("%w: it is not a regular file", ErrReadOnly)
	}
	// Its owner protected it; that the directory lets us replace it is no reason
	// to do so.
	if info.Mode().Perm()&0o222 == 0 {
		return "", nil, fmt.Errorf("%w: it is write-protected (mode %#o)", ErrReadOnly, info.Mode().Perm())
	}
	return target, info, nil
}

// refuseVolume refuses files of a ConfigMap or Secret of Kubernetes, which come
// through a link named ..data. Its next update would undo what was written.
func refuseVolume(dirs ...string) error {
	for _, dir := range dirs {
		if _, err := os.Readlink(filepath.Join(dir, "..data")); err == nil {
			return fmt.Errorf("%w: it comes from a ConfigMap or a Secret; change that", ErrReadOnly)
		}
	}
	return nil
}

// readOnly tells the errors apart that say the file may not be changed.
func readOnly(err error) error {
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: its file system is mounted read-only", ErrReadOnly)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: this user may not write into its directory", ErrReadOnly)
	default:
		return err
	}
}

// fill writes the content and gives the file the owner of another.
func fill(file *ondisk.Draft, content []byte, like os.FileInfo) error {
	if _, err := file.Write(content); err != nil {
		return err
	}
	stat, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%w: its owner cannot be found out", ErrReadOnly)
	}
	if err := file.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
		return fmt.Errorf("%w: this user may not keep its owner (%d:%d)", ErrReadOnly, stat.Uid, stat.Gid)
	}
	return nil
}

func sum(path string) (sum [sha256.Size]byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}
