package store

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

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
	for {
		select {
		case first := <-s.updates:
			s.commit(s.gather(first))
		case <-s.closing:
			s.finish()
			s.err = s.db.Close()
			return
		}
	}
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
	tx, err := s.db.Begin(true)
	if err != nil {
		return -1, diskError(err)
	}
	for i, u := range group {
		if err := apply(tx, u.change); err != nil {
			return i, rolledBack(tx, err)
		}
	}
	failpoint.Hit(failpoint.StateCommit)
	if err := tx.Commit(); err != nil {
		return -1, diskError(err)
	}
	failpoint.Hit(failpoint.StateCommitted)
	return -1, nil
}

func rolledBack(tx *bbolt.Tx, err error) error {
	if undo := tx.Rollback(); undo != nil {
		return fmt.Errorf("%w (and undo: %w)", err, undo)
	}
	return err
}

// apply runs a change. A panic ends that update and nobody else's.
func apply(tx *bbolt.Tx, change func(tx *bbolt.Tx) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in a change of the state: %v\n%s", r, debug.Stack())
		}
	}()
	return change(tx)
}

// syncDir makes the name of a new file durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
