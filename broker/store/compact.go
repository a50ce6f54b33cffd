package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

const (
	// compactAbove is how many bytes of a file may be free before it is worth
	// writing it anew.
	compactAbove = 16 << 20
	// compactStep bounds one transaction of that, in bytes.
	compactStep = 4 << 20
	// compactSuffix marks the file that is being written. One that a crash left
	// half done is replaced the next time.
	compactSuffix = ".compact"
)

// compacted returns the database in a file without the room that nobody uses, if more
// than half of it is such: bbolt gives nothing back by itself.
func compacted(db *bbolt.DB, path string, options *bbolt.Options) (*bbolt.DB, error) {
	info, err := os.Stat(path)
	if err != nil {
		return db, err
	}
	free := int64(db.Stats().FreePageN) * int64(db.Info().PageSize)
	if free <= compactAbove || free <= info.Size()/2 {
		return db, nil
	}
	if err := writeAnew(db, path+compactSuffix); err != nil {
		// There is no room for a second file, perhaps; the one that is there will do.
		// If there is one, and it stays, it is in the way of nobody.
		_ = os.Remove(path + compactSuffix)
		return db, nil //nolint:nilerr // see above
	}
	// The directory's lock keeps others out until it is open again.
	if err := errors.Join(db.Close(), os.Rename(path+compactSuffix, path), syncDir(filepath.Dir(path))); err != nil {
		return db, fmt.Errorf("compact the state file %s: %w", path, err)
	}
	again, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return db, openError(path, err)
	}
	return again, nil
}

func writeAnew(db *bbolt.DB, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	to, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	return errors.Join(bbolt.Compact(to, db, compactStep), to.Close())
}
