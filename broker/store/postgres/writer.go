package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/groupcommit"
)

// mostTries bounds how often a transaction is sent again that was not done.
const mostTries = 4

// change is what an update does.
type change = func(tx store.Tx) error

// attempt runs changes in one transaction; see groupcommit.Attempt.
func (s *Store) attempt(changes []change) (about int, err error) {
	about, err = s.transact(changes)
	if one, ok := errors.AsType[blamed](err); ok {
		return groupcommit.Somebody, one.error
	}
	return about, err
}

func (s *Store) transact(changes []change) (about int, err error) {
	until, err := s.lease.held()
	if err != nil {
		return groupcommit.Everybody, err
	}
	// Nothing may be written after the end of the lease, so nobody waits longer.
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	// What was sent before, and not answered, has been done by now or never will be: else it
	// could come behind what is read and written here, and undo that.
	if s.unclear {
		if err := s.lease.giveUpSent(ctx); err != nil {
			return groupcommit.Everybody, err
		}
		s.unclear = false
	}
	tx := &transaction{ctx: ctx, from: s.own, broker: s.lease.broker, changed: map[slot]content{}}
	for i, change := range changes {
		if err := apply(tx, change); err != nil {
			return i, err
		}
	}
	failpoint.Hit(failpoint.StateCommit)
	if err := s.flush(ctx, tx.changed); err != nil {
		return groupcommit.Everybody, err
	}
	for _, then := range tx.then {
		then()
	}
	failpoint.Hit(failpoint.StateCommitted)
	return groupcommit.Everybody, nil
}

// flush makes changes durable, all or none, in one round trip: a pipeline without BEGIN is one
// transaction. It is sent again where it was not sent, on a connection that had ended, and where
// the database has undone it for another one's sake.
func (s *Store) flush(ctx context.Context, changed map[slot]content) error {
	if len(changed) == 0 {
		return nil
	}
	defer s.meter.Begin()()
	failpoint.Hit(failpoint.StateSync)
	err := s.send(ctx, changed)
	for range mostTries {
		if err == nil || !pgconn.SafeToRetry(err) && !isRolledBack(err) || ctx.Err() != nil {
			break
		}
		err = s.send(ctx, changed)
	}
	s.unclear = err != nil && !settled(err)
	switch {
	case err == nil:
		return nil
	case isFenced(err):
		s.lease.lose()
		return takenError()
	}
	if elsewhere := s.elsewhere(ctx, err, changed); elsewhere != nil {
		return blamed{elsewhere}
	}
	if refusesRecord(err) {
		return blamed{fmt.Errorf("the database does not take a record: %w", err)}
	}
	s.logger.Warn("the state could not be written to the database", "error", err)
	return unavailable(err)
}

// blamed is an error that is one update's fault, whichever of those in the transaction.
type blamed struct{ error }

func (b blamed) Unwrap() error { return b.error }

func (s *Store) send(ctx context.Context, changed map[slot]content) error {
	var put, removed columns
	// Always in the same order, so that no two transactions wait for each other.
	slots := slices.SortedFunc(maps.Keys(changed), func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.key, b.key))
	})
	for _, at := range slots {
		c := changed[at]
		if c.removed {
			removed.add(at, nil)
		} else {
			put.add(at, c.value)
		}
	}
	batch := &pgx.Batch{}
	s.fence(batch)
	limits := s.limitsOf(put)
	if locks := locksOf(slots, limits.tenants); len(locks) > 0 {
		batch.Queue(`SELECT sandbox_lock($1)`, locks)
	}
	if len(removed.buckets) > 0 {
		batch.Queue(`DELETE FROM sandbox_record r USING unnest($2::text[], $3::bytea[]) AS gone (bucket, key)
			WHERE r.broker = $1 AND r.bucket = gone.bucket AND r.key = gone.key`, s.lease.broker, removed.buckets, removed.keys)
	}
	if len(put.buckets) > 0 {
		batch.Queue(`INSERT INTO sandbox_record (broker, bucket, key, value, most, tenant, kind, bytes, most_bytes)
			SELECT $1, bucket, key, value, most, tenant, kind, bytes, most_bytes
			FROM unnest($2::text[], $3::bytea[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bigint[], $9::bigint[])
				AS put (bucket, key, value, most, tenant, kind, bytes, most_bytes)
			ON CONFLICT (broker, bucket, key) DO UPDATE SET value = excluded.value, most = excluded.most,
				tenant = excluded.tenant, kind = excluded.kind, bytes = excluded.bytes, most_bytes = excluded.most_bytes`,
			s.lease.broker, put.buckets, put.keys, put.values, limits.most, limits.tenants, limits.kinds, limits.bytes, limits.mostBytes)
	}
	return s.own.SendBatch(ctx, batch).Close()
}

// fence has a transaction begin with the proof that it is still to be carried out.
func (s *Store) fence(batch *pgx.Batch) {
	batch.Queue(`SELECT sandbox_fence($1, $2, $3)`, s.lease.broker, s.lease.epoch, s.lease.attempt)
}

// columns are records as arrays, which is how one statement takes many.
type columns struct {
	buckets []string
	keys    [][]byte
	values  []*string
}

func (c *columns) add(at slot, value []byte) {
	c.buckets = append(c.buckets, string(at.bucket))
	c.keys = append(c.keys, []byte(at.key))
	var text *string
	if len(value) > 0 {
		s := string(value)
		text = &s
	}
	c.values = append(c.values, text)
}

// apply runs a change. A panic ends that update and nobody else's.
func apply(tx *transaction, change change) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in a change of the state: %v\n%s", r, debug.Stack())
		}
	}()
	return change(tx)
}
