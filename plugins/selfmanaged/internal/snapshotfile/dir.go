package snapshotfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Names in the directory. What is being written is locked by who does it.
const (
	suffix   = ".snapshot"
	unwhole  = ".new"
	dirMode  = 0o700
	fileMode = 0o600
)

// ErrNotFound is for a snapshot that is not there.
var ErrNotFound = errors.New("no such snapshot")

// idForm keeps IDs from being paths.
var idForm = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// Dir is a directory of snapshots.
type Dir struct{ path string }

// Open removes what a process has left in the directory that was killed while it wrote. The
// directory is made with the first snapshot.
func Open(path string) (*Dir, error) {
	d := &Dir{path}
	names, err := d.names(unwhole)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := removeUnlocked(filepath.Join(path, name+unwhole)); err != nil {
			return nil, fmt.Errorf("remove what was left of a snapshot: %w", err)
		}
	}
	return d, nil
}

// removeUnlocked removes a file that nobody writes.
func removeUnlocked(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is whole by now
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	return removeIfThere(path)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// names are those in the directory with an ending, without it.
func (d *Dir) names(ending string) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), ending); is && idForm.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (d *Dir) file(id, ending string) string { return filepath.Join(d.path, id+ending) }

// Write keeps a snapshot. fill writes the content. The result has the size of the file.
func (d *Dir) Write(h Header, key []byte, fill func(io.Writer) error) (_ Header, err error) {
	if !idForm.MatchString(h.ID) {
		return h, fmt.Errorf("%.80q is no ID", h.ID)
	}
	if err := os.MkdirAll(d.path, dirMode); err != nil {
		return h, fmt.Errorf("make the directory of snapshots: %w", err)
	}
	path := d.file(h.ID, unwhole)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return h, fmt.Errorf("write a snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(path))
		}
		// A second time, it fails and does not matter.
		_ = f.Close()
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return h, fmt.Errorf("lock a snapshot: %w", err)
	}
	if err := write(f, h, key, fill); err != nil {
		return h, fmt.Errorf("write a snapshot: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(path, d.file(h.ID, suffix))
	}
	if err != nil {
		return h, fmt.Errorf("write a snapshot: %w", err)
	}
	h.Bytes = info.Size()
	return h, d.sync()
}

// sync has the names of the directory survive a loss of power.
func (d *Dir) sync() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Read opens a snapshot, or returns ErrNotFound.
func (d *Dir) Read(id string) (*File, error) {
	if !idForm.MatchString(id) {
		return nil, ErrNotFound
	}
	f, err := os.OpenFile(d.file(id, suffix), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	h, text, err := readHeader(f)
	if err == nil && h.ID != id {
		err = errForm // somebody has given it another name
	}
	var info os.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open snapshot %s: %w", id, err), f.Close())
	}
	h.Bytes = info.Size()
	return &File{Header: h, text: text, file: f}, nil
}

// List returns what is known of all snapshots. One that cannot be read is left out, and told
// to unreadable.
func (d *Dir) List(unreadable func(id string, err error)) ([]Header, error) {
	ids, err := d.names(suffix)
	if err != nil {
		return nil, err
	}
	var all []Header
	for _, id := range ids {
		f, err := d.Read(id)
		switch {
		case errors.Is(err, ErrNotFound): // it was deleted at this moment
			continue
		case err != nil:
			unreadable(id, err)
			continue
		}
		all = append(all, f.Header)
		_ = f.Close() // it was only read
	}
	return all, nil
}

// Delete removes a snapshot, if it is there. Who reads it goes on.
func (d *Dir) Delete(id string) error {
	if !idForm.MatchString(id) {
		return nil
	}
	err := os.Remove(d.file(id, suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete a snapshot: %w", err)
	}
	return d.sync()
}
