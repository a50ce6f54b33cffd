package seal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxKeyFile bounds a key file, in bytes.
const maxKeyFile = 64 << 10

// ReadKeyFile returns the text of a key file, for ParseKeys. Nobody but its owner
// may have access, and the owner is this user or root. The errors do not repeat
// the path.
func ReadKeyFile(path string) ([]byte, error) {
	// Not blocking: to open a named pipe would wait for its writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err
		}
		return nil, err
	}
	defer file.Close()
	// The file that was opened, whatever stands at its path by now.
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkKeyFile(info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("larger than %d KiB", maxKeyFile>>10)
	}
	return text, nil
}

func checkKeyFile(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner cannot be found out")
	}
	if owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to the user %d, who could replace it; let root or the broker's user own it", owner.Uid)
	}
	open := info.Mode().Perm() & 0o077
	// The service manager hands credentials to a service with a list of access
	// rights, which looks like a right of root's group.
	if open == 0o040 && owner.Uid == 0 && owner.Gid == 0 {
		return nil
	}
	if open != 0 {
		return fmt.Errorf("others have access to it (mode %#o); chmod 600 it", info.Mode().Perm())
	}
	return nil
}
