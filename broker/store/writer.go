package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
)

// maxGroup bounds how many updates share one transaction, and how many wait in
// line before callers do.
const maxGroup = 256

// update is one call of Update.
type update struct {
	ctx     context.Context
	change  func(tx *bbolt.Tx) error
	outcome chan error // has room for the one answer
}

// write carries out the updates, all that wait at a time in one transaction: the
// disk is waited for once for all of them, and nobody waits for company.
func (s *Store) write() {
	defer close(s.done)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case first := <-s.updates:
			s.commit(s.gather(first))
		case <-look.C:
			s.look()
		case <-s.closing:
			s.finish()
			s.err = s.end()
			return
		}
	}
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

// finish carries out what was in line when the store was closed.
func (s *Store) finish() {
	for {
		select {
		case first := <-s.updates:
			s.commit(s.gather(first))
		default:
			return
		}
	}
}

// gather returns the updates that wait, without those whose callers have gone.
func (s *Store) gather(first *update) []*update {
	var group []*update
	for next := first; ; {
		if err := next.ctx.Err(); err != nil {
			next.outcome <- err
		} else {
			group = append(group, next)
		}
		if len(group) == maxGroup {
			return group
		}
		select {
		case next = <-s.updates:
		default:
			return group
		}
	}
}

// commit carries out a group. An update that fails is left out, and the others
// begin again without it: bbolt has no way to undo a part of a transaction. It is
// run alone then, since it may have failed because of what others of the group did.
func (s *Store) commit(group []*update) {
	var failed []*update
	for len(group) > 0 {
		at, err := s.attempt(group)
		if at < 0 {
			for _, u := range group {
				u.outcome <- err
			}
			break
		}
		if len(group) == 1 && len(failed) == 0 {
			group[0].outcome <- err // it was alone already
			return
		}
		failed = append(failed, group[at])
		group = append(group[:at], group[at+1:]...)
	}
	for _, u := range failed {
		_, err := s.attempt([]*update{u})
		u.outcome <- err
	}
}

// attempt runs the changes in one transaction. at is the one that failed, and less
// than 0 if it was none of them; the error is that of the commit then.
func (s *Store) attempt(group []*update) (at int, err error) {
	if err := s.inPlace(); err != nil {
		return -1, err
	}
	at = -1
	err, broken := guarded(func() error {
		var err error
		at, err = s.transact(group)
		return err
	})
	if broken != nil {
		return -1, s.broke(broken)
	}
	return at, err
}

func (s *Store) transact(group []*update) (at int, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return -1, diskError(err)
	}
	if err := s.unchanged(tx, tx.ID()-1); err != nil {
		return -1, rolledBack(tx, s.broke(err))
	}
	for i, u := range group {
		err, broken := apply(tx, u.change)
		if broken != nil {
			return -1, s.broke(broken)
		}
		if err != nil {
			return i, rolledBack(tx, err)
		}
	}
	failpoint.Hit(failpoint.StateCommit)
	id := tx.ID()
	if err := s.confirmed(tx); err != nil {
		s.last = 0 // nobody knows whether it came to the disk
		return -1, diskError(err)
	}
	s.last = id
	failpoint.Hit(failpoint.StateCommitted)
	return -1, nil
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
func apply(tx *bbolt.Tx, change func(tx *bbolt.Tx) error) (err, broken error) {
	defer func() {
		if r := recover(); r != nil {
			if broken = fileFault(r); broken == nil {
				err = fmt.Errorf("panic in a change of the state: %v\n%s", r, debug.Stack())
			}
		}
	}()
	return change(tx), nil
}
