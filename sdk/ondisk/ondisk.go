// Package ondisk puts files and names in their places so that they are there after a
// loss of power too. A file is replaced in one step: who reads it meanwhile, or after a
// crash, has the old content or the new.
//
// Not here: files that grow (the audit log), those that bbolt writes, and those in a
// sandbox, whose code may be hostile.
package ondisk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

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
// before Commit leaves the draft beside it; a Create for the same path an hour later, or
// RemoveAbandoned, removes it.
func Create(path string, mode os.FileMode) (*Draft, error) {
	dir := filepath.Dir(path)
	_ = removeAbandoned(dir, filepath.Base(path)) // what is left there hinders nothing
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

// abandonedAfter is the age of a draft that no process can still be writing.
const abandonedAfter = time.Hour

// RemoveAbandoned removes the drafts in a directory that processes which were killed an
// hour ago or more have left. It is for directories of names that do not come again.
func RemoveAbandoned(dir string) error { return removeAbandoned(dir, "") }

// removeAbandoned removes those of one file, or of any if base is empty.
func removeAbandoned(dir, base string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || !isDraft(name, base) {
			continue
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < abandonedAfter {
			continue // it has just been put in its place, or is being written
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// isDraft says whether renameio gives a draft of base such a name: a dot, base and a
// random number. An empty base stands for any.
func isDraft(name, base string) bool {
	const digits = "0123456789"
	number, hidden := strings.CutPrefix(name, "."+base)
	if base == "" {
		number = number[len(strings.TrimRight(number, digits)):]
	}
	return hidden && number != "" && strings.Trim(number, digits) == ""
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
