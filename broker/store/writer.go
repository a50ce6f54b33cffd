package store

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/store/groupcommit"
)

// write carries out the updates until the store is closed: the disk is waited for once for all
// that wait at a time.
func (s *Store) write() {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	s.line.Serve(look.C, s.look)
}

// end closes the file. Of one that is damaged bbolt may hold locks that nobody gives
// back.
func (s *Store) end() error {
	if err := s.Err(); err != nil {
		return errors.Join(err, s.db.abandon())
	}
	err, broken := guarded(s.db.Close)
	if broken != nil {
		return errors.Join(s.broke(broken), s.db.abandon())
	}
	return err
}

// attempt runs changes in one transaction; see groupcommit.Attempt. bbolt has no way to undo a
// part of one.
func (s *Store) attempt(changes []change) (about int, err error) {
	if err := s.inPlace(); err != nil {
		return groupcommit.Everybody, err
	}
	about = groupcommit.Everybody
	err, broken := guarded(func() error {
		var err error
		about, err = s.transact(changes)
		return err
	})
	if broken != nil {
		return groupcommit.Everybody, s.broke(broken)
	}
	return about, err
}

func (s *Store) transact(changes []change) (about int, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return groupcommit.Everybody, diskError(err)
	}
	if err := s.unchanged(tx, tx.ID()-1); err != nil {
		return groupcommit.Everybody, rolledBack(tx, s.broke(err))
	}
	for i, change := range changes {
		err, broken := apply(tx, change)
		if broken != nil {
			return groupcommit.Everybody, s.broke(broken)
		}
		if err != nil {
			return i, rolledBack(tx, err)
		}
	}
	failpoint.Hit(failpoint.StateCommit)
	id := tx.ID()
	if err := s.confirmed(tx); err != nil {
		s.last = 0 // nobody knows whether it came to the disk
		return groupcommit.Everybody, diskError(err)
	}
	s.last = id
	failpoint.Hit(failpoint.StateCommitted)
	return groupcommit.Everybody, nil
}

// confirmed commits, and has the meter watch the disk meanwhile.
func (s *Store) confirmed(tx *bbolt.Tx) error {
	defer s.meter.Begin()()
	failpoint.Hit(failpoint.StateSync)
	return tx.Commit()
}

func rolledBack(tx *bbolt.Tx, err error) error {
	if undo := tx.Rollback(); undo != nil {
		return fmt.Errorf("%w (and undo: %w)", err, undo)
	}
	return err
}

// apply runs a change. A panic ends that update and nobody else's, unless it is the file
// that is broken.
func apply(tx *bbolt.Tx, change change) (err, broken error) {
	defer func() {
		if r := recover(); r != nil {
			if broken = fileFault(r); broken == nil {
				err = fmt.Errorf("panic in a change of the state: %v\n%s", r, debug.Stack())
			}
		}
	}()
	return change(fileTx{tx}), nil
}
