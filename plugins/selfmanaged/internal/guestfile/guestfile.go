// Package guestfile holds the guest's program as it was when the provider started:
// opened, checked, and at hand however often its copy for the sandboxes has to be
// made. A new build that is installed meanwhile speaks another protocol than the
// running plugin, and is of the next plugin.
package guestfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sandbox-broker/sandbox-broker/sdk/hostfile"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// File is the guest's program on this machine.
type File struct{ file *os.File }

// Open opens it. It refuses one that somebody else may change, for it runs as root in
// every sandbox. The caller closes it.
func Open(path string) (*File, error) {
	if err := hostfile.CheckWithDirectories(path); err != nil {
		return nil, fmt.Errorf("sandbox-guest may be changed by others: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &File{file}, nil
}

// Install makes a copy that anybody may execute, unless there is one of the same size.
func (f *File) Install(path string) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	switch there, err := os.Lstat(path); {
	case err == nil && there.Mode().IsRegular() && there.Size() == info.Size():
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// An earlier copy may be mounted in a sandbox that still ends: it keeps its own
	// file.
	draft, err := ondisk.Create(path, 0o555)
	if err != nil {
		return err
	}
	defer draft.Cleanup()
	if _, err := io.Copy(draft, io.NewSectionReader(f.file, 0, info.Size())); err != nil {
		return err
	}
	return draft.Commit()
}

// Digest identifies the program.
func (f *File) Digest() (string, error) {
	info, err := f.file.Stat()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f.file, 0, info.Size())); err != nil {
		return "", fmt.Errorf("read sandbox-guest: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Close closes it.
func (f *File) Close() error { return f.file.Close() }
