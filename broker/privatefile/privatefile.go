// Package privatefile opens and writes the files of the broker that hold secrets or on
// which it relies: ordinary ones, of its own user, closed to everybody else. It knows
// nothing of what is in them.
//
// What stands in the place of such a file may be anything. A pipe would be waited for, a
// device read without an end, a link followed to wherever it leads, and what others may
// write says what they want.
package privatefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Open is os.OpenFile for an ordinary file, without waiting and without following a link
// in its last place. It does not look at owner and mode.
func Open(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, refuse("%s is a symbolic link; put the file itself there", path)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.EISDIR):
		return nil, notOrdinary(path)
	case err != nil:
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notOrdinary(path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func notOrdinary(path string) error {
	return refuse("%s is not an ordinary file; move it away and put the file there, or nothing", path)
}

func refuse(format string, args ...any) error {
	return sdk.Errorf(sdk.CodeInvalidConfig, format, args...)
}

// Read returns what is in a file of at most limit bytes that is the broker's alone.
func Read(path string, limit int64) ([]byte, error) {
	file, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if err := Check(path, info); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = refuse("%s is longer than %d bytes, and so not what the broker wrote", path, limit)
	}
	return content, err
}

// Check refuses what belongs to another user, or is open to others.
func Check(path string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := checkOwner(path, int(stat.Uid)); err != nil {
			return err
		}
	}
	mode, closed := info.Mode().Perm(), "600"
	if info.IsDir() {
		closed = "700"
	}
	switch {
	case mode&0o022 != 0:
		return refuse("%s may be written by others (mode %04o), so that what is in it may be theirs; look at it, then chmod %s %s", path, mode, closed, path)
	case mode&0o077 != 0:
		return refuse("%s may be read by others (mode %04o), and holds secrets; chmod %s %s, and replace them if anybody else uses this machine", path, mode, closed, path)
	default:
		return nil
	}
}

func checkOwner(path string, owner int) error {
	if own := os.Geteuid(); owner != own && owner != 0 {
		return refuse("%s belongs to the user %d, and the broker is run by %d; chown it, or choose another directory", path, owner, own)
	}
	return nil
}

// Write puts content in the place of a file, mode 0600, durable when it returns: a crash
// leaves the one before or this one.
func Write(path string, content []byte) error { return ondisk.WriteFile(path, content, 0o600) }
