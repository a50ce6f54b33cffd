package audit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// File is an open file of the log, as the writer needs it.
type File interface {
	// Write appends.
	Write(p []byte) (int, error)
	// Sync returns when everything written is on disk, with the file's size.
	Sync() error
	// Truncate takes back what was written after size.
	Truncate(size int64) error
	// Present reports whether the file still stands under its name.
	Present() bool
	Close() error
}

// OpenFunc opens a file of the log for its owner alone. A new one must not be there
// already; a symbolic link is not followed.
type OpenFunc func(path string, fresh bool) (File, error)

// osFile is a File of the operating system.
type osFile struct {
	*os.File
	info os.FileInfo
}

// OpenFile is the OpenFunc of real files.
func OpenFile(path string, fresh bool) (File, error) {
	flags := os.O_WRONLY | os.O_APPEND | unix.O_NOFOLLOW
	if fresh {
		flags |= os.O_CREATE | os.O_EXCL
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &osFile{file, info}, nil
}

// Sync implements File. Times of the file may be lost, data and size not.
func (f *osFile) Sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// Present implements File.
func (f *osFile) Present() bool {
	info, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(info, f.info)
}
