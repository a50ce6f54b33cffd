// Package ondisk puts files and names in their places so that they are there after a
// loss of power too. A file is replaced in one step: who reads it meanwhile, or after a
// crash, has the old content or the new.
//
// Not here: files that grow (the audit log), those that bbolt writes, and those in a
// sandbox, whose code may be hostile.
package ondisk

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Draft is a file that has no name of its own yet. Defer its Cleanup, which removes it
// unless Commit has put it in its place.
type Draft struct {
	*renameio.PendingFile
	dir string
}

// Create begins a file that is to stand at path, with exactly that mode. A link that
// stands there will be replaced, and not what it leads to. A process that is killed
// before Commit leaves the draft beside it, under a name that begins with a dot.
func Create(path string, mode os.FileMode) (*Draft, error) {
	dir := filepath.Dir(path)
	// Elsewhere than in that directory it could be on another file system.
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir))
	if err != nil {
		return nil, err
	}
	if err := file.Chmod(mode); err != nil {
		return nil, errors.Join(err, file.Cleanup())
	}
	return &Draft{file, dir}, nil
}

// Commit puts the file in its place.
func (d *Draft) Commit() error {
	if err := d.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return SyncDir(d.dir) // renameio leaves that to its caller
}

// WriteFile puts content at path, as Create and Commit do.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	draft, err := Create(path, mode)
	if err != nil {
		return err
	}
	defer draft.Cleanup()
	if _, err := draft.Write(content); err != nil {
		return err
	}
	return draft.Commit()
}

// Rename gives a file that is on disk another name.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir makes the names in a directory last.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
