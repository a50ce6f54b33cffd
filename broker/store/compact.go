package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
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

// compacted returns the database in a file without the room that nobody uses, always or
// if more than half of it is such: bbolt gives nothing back by itself.
func compacted(db *database, path string, lockTimeout time.Duration, always bool) (*database, error) {
	info, err := os.Stat(path)
	if err != nil {
		return db, err
	}
	free := int64(db.Stats().FreePageN) * int64(db.Info().PageSize)
	if !always && (free <= compactAbove || free <= info.Size()/2) {
		return db, nil
	}
	if err := writeAnew(db.DB, path+compactSuffix); err != nil {
		// There is no room for a second file, perhaps; the one that is there will do.
		// If there is one, and it stays, it is in the way of nobody.
		_ = os.Remove(path + compactSuffix)
		return db, nil //nolint:nilerr // see above
	}
	// The directory's lock keeps others out until it is open again.
	if err := errors.Join(db.Close(), ondisk.Rename(path+compactSuffix, path)); err != nil {
		return db, fmt.Errorf("compact the state file %s: %w", path, err)
	}
	again, err := openDatabase(path, lockTimeout)
	if err != nil {
		return db, err
	}
	return again, nil
}

// purgedKey in the bucket about says that the file was purged.
const purgedKey = "purged"

// purged returns the database without what must not be in it. Where there is no room to
// write the file anew, the next start tries again.
func (s *Store) purged(opts Options) (*database, error) {
	done := false
	if err := s.db.View(func(tx *bbolt.Tx) error {
		done = about.of(tx).Get([]byte(purgedKey)) != nil
		return nil
	}); err != nil || done || opts.Purge == nil {
		return s.db, err
	}
	if err := s.change(func(tx *bbolt.Tx) error { return opts.Purge(fileTx{tx}) }); err != nil {
		return s.db, err
	}
	before := s.db
	db, err := compacted(s.db, s.path, opts.LockTimeout, true)
	if err != nil || db == before {
		return db, err
	}
	s.db = db
	return db, s.change(func(tx *bbolt.Tx) error { return about.of(tx).Put([]byte(purgedKey), []byte("1")) })
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
