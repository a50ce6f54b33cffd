package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/broker/store/boltfile"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Copies of the file are kept beside it, each verified as a whole before it takes its
// place: the newest at the start and every ten minutes if anything has changed, one that
// was the newest an hour later, and one from a day before that. So a damage that nobody
// notices for a day leaves one that has none.
const (
	copyEvery = 10 * time.Minute
	copySpan  = time.Hour      // how much older the second is at least
	oldSpan   = 24 * time.Hour // the third
)

// copyPath is where a copy is, 1 for the newest.
func copyPath(path string, n int) string { return fmt.Sprintf("%s.copy%d", path, n) }

// Copies returns the names that copies of a state file may have, the newest first.
func Copies(path string) []string {
	return []string{copyPath(path, 1), copyPath(path, 2), copyPath(path, 3)}
}

// keepCopies works until the store is closed.
func (s *Store) keepCopies() {
	defer close(s.copied)
	tick := time.NewTicker(copyEvery)
	defer tick.Stop()
	for {
		if err := s.KeepCopy(); err != nil && s.Err() == nil {
			s.logger.Warn("no copy of the state file could be kept; those from before stay", "file", s.path, "error", err)
		}
		select {
		case <-tick.C:
		case <-s.line.Closing():
			return
		}
	}
}

// KeepCopy makes the newest copy anew if the file has changed since.
func (s *Store) KeepCopy() error {
	s.keeping.Lock() // that of the start may be under way
	defer s.keeping.Unlock()
	changed, err := s.changedSince(copyPath(s.path, 1))
	if err != nil || !changed {
		return err
	}
	next := copyPath(s.path, 1) + ".new"
	if err := s.writeCopy(next); err != nil {
		return err
	}
	if err := shift(s.path, time.Now()); err != nil {
		return err
	}
	return ondisk.Rename(next, copyPath(s.path, 1))
}

// changedSince reports whether a copy is not of the last transaction. A file that holds
// nothing needs none.
func (s *Store) changedSince(copied string) (changed bool, err error) {
	var transaction uint64
	empty := true
	if err := s.view(func(tx *bbolt.Tx) error {
		transaction = uint64(tx.ID())
		for _, b := range Buckets() {
			if first, _ := b.of(tx).Cursor().First(); first != nil && b != about {
				empty = false
			}
		}
		return nil
	}); err != nil {
		return false, err
	}
	file, err := privatefile.Open(copied, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return !empty, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	meta, err := boltfile.ReadMeta(file, info.Size())
	return err != nil || meta.Transaction != transaction, nil
}

// shift makes room for a new first copy: it becomes the second if that is old enough, and
// the second the third likewise.
func shift(path string, now time.Time) error {
	if err := age(copyPath(path, 2), copyPath(path, 3), now, oldSpan); err != nil {
		return err
	}
	return age(copyPath(path, 1), copyPath(path, 2), now, copySpan)
}

// age moves a copy to the place of an older one, if that is missing or older than span.
func age(from, to string, now time.Time, span time.Duration) error {
	info, err := os.Lstat(to)
	switch {
	case err == nil && now.Sub(info.ModTime()) < span:
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// writeCopy writes what is durable now to a file of that name, mode 0600, and verifies it.
func (s *Store) writeCopy(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	file, err := privatefile.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := s.Snapshot(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	report, err := verify(file, path)
	if err == nil && report.Damaged > 0 {
		err = damagedError(s.path, fmt.Errorf("%d of its records cannot be read", report.Damaged))
	}
	return err
}

// Snapshot writes what is durable now, as a state file, while others go on. The file grows
// as long as that takes.
func (s *Store) Snapshot(to io.Writer) error {
	s.copying.Lock()
	defer s.copying.Unlock()
	return s.view(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(to)
		return err
	})
}
