package store

import (
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// lookEvery is how often the writer looks whether its file is still the one that has its
// name, and as it left it.
const lookEvery = 2 * time.Second

// look finds out while nothing is written what the next update would.
func (s *Store) look() {
	if s.Err() != nil || s.inPlace() != nil {
		return
	}
	if err := s.view(func(tx *bbolt.Tx) error { return s.unchanged(tx, tx.ID()) }); err != nil && s.Err() == nil {
		_ = s.broke(err) // it logs it
	}
}

// inPlace makes sure that what is written will be found by the next broker: when the file
// was removed, its directory perhaps with it, what it holds is written to a new one.
// Errors carry SB009.
func (s *Store) inPlace() error {
	if err := s.Err(); err != nil {
		return err
	}
	own, err := s.db.file.Stat()
	if err != nil {
		return diskError(err)
	}
	there, err := os.Lstat(s.path)
	if err == nil && os.SameFile(own, there) {
		return nil
	}
	aside := ""
	if err == nil { // somebody has put another one there, and may want it back
		aside = s.path + time.Now().UTC().Format(".found-20060102T150405.000")
	}
	if err := s.makeAgain(aside); err != nil {
		s.logger.Error("the state file was removed, and cannot be made again", "file", s.path, "error", err)
		return diskError(err)
	}
	if aside == "" {
		s.logger.Error("the state file was removed while the broker ran; it was made again", "file", s.path)
	} else {
		s.logger.Error("another file was put in the place of the state file while the broker ran; stop the broker before you do that", "file", s.path, "other", aside)
	}
	return nil
}

// makeAgain writes what the file holds that has lost its name to one that has it, and
// goes on with that. A file that has the name now is moved aside.
func (s *Store) makeAgain(aside string) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	if err := s.writeCopy(s.path + compactSuffix); err != nil {
		return err
	}
	if aside != "" {
		if err := os.Rename(s.path, aside); err != nil {
			return err
		}
	}
	if err := ondisk.Rename(s.path+compactSuffix, s.path); err != nil {
		return err
	}
	again, err := openDatabase(s.path, time.Second)
	if err != nil {
		return err
	}
	s.swap.Lock()
	old := s.db
	s.db, s.last = again, 0
	s.swap.Unlock()
	return old.Close() // waits for the views that are open
}
