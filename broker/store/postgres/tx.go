package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// slot is the place of a record.
type slot struct {
	bucket store.Bucket
	key    string
}

// content is what is to be in a slot.
type content struct {
	value   []byte
	removed bool
}

// querier asks the database; a pool does.
type querier interface {
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

// transaction reads what is durable, and what those before it in its group have changed. Its
// own changes wait in memory: only this process writes the records, so nobody sees that.
type transaction struct {
	ctx     context.Context
	from    querier
	broker  string
	changed map[slot]content // nil in one that only reads
	then    []func()
}

var _ store.Tx = (*transaction)(nil)

// Get implements store.Tx.
func (t *transaction) Get(bucket store.Bucket, key string) ([]byte, error) {
	if c, ok := t.changed[slot{bucket, key}]; ok {
		return c.value, nil
	}
	var value *string
	err := t.from.QueryRow(t.ctx, `SELECT value FROM sandbox_record WHERE broker = $1 AND bucket = $2 AND key = $3`,
		t.broker, string(bucket), []byte(key)).Scan(&value)
	switch {
	case err == pgx.ErrNoRows: //nolint:errorlint // pgx returns it as it is
		return nil, nil
	case err != nil:
		return nil, unavailable(err)
	case value == nil:
		return []byte{}, nil
	}
	return []byte(*value), nil
}

// Put implements store.Tx.
func (t *transaction) Put(bucket store.Bucket, key string, value []byte) error {
	return t.change(bucket, key, content{value: slices.Clone(value)})
}

// Delete implements store.Tx.
func (t *transaction) Delete(bucket store.Bucket, key string) error {
	return t.change(bucket, key, content{removed: true})
}

func (t *transaction) change(bucket store.Bucket, key string, c content) error {
	if t.changed == nil {
		return fmt.Errorf("the state cannot be changed by who only reads it")
	}
	t.changed[slot{bucket, key}] = c
	return nil
}

// pageSizes of Scan: most of those who read a part want the first few.
const (
	firstPage = 8
	lastPage  = 1024
)

// Scan implements store.Tx.
func (t *transaction) Scan(bucket store.Bucket, from string, visit func(key string, value []byte) (bool, error)) error {
	own := t.changedIn(bucket, from)
	comparison := ">="
	for size := firstPage; ; size = min(4*size, lastPage) {
		page, err := t.page(bucket, comparison, from, size)
		if err != nil {
			return err
		}
		for _, r := range page {
			for len(own) > 0 && own[0] < r.key {
				if more, err := t.visitOwn(bucket, own[0], visit); !more || err != nil {
					return err
				}
				own = own[1:]
			}
			if len(own) > 0 && own[0] == r.key {
				continue // it comes with the next round, as it was changed
			}
			if more, err := visit(r.key, r.value); !more || err != nil {
				return err
			}
		}
		if len(page) < size {
			break
		}
		comparison, from = ">", page[len(page)-1].key
	}
	for _, key := range own {
		if more, err := t.visitOwn(bucket, key, visit); !more || err != nil {
			return err
		}
	}
	return nil
}

// visitOwn visits a slot that was changed, unless it was emptied.
func (t *transaction) visitOwn(bucket store.Bucket, key string, visit func(key string, value []byte) (bool, error)) (more bool, err error) {
	c := t.changed[slot{bucket, key}]
	if c.removed {
		return true, nil
	}
	return visit(key, c.value)
}

// changedIn lists the keys of a bucket that were changed, from one on, in their order.
func (t *transaction) changedIn(bucket store.Bucket, from string) []string {
	var keys []string
	for s := range maps.Keys(t.changed) {
		if s.bucket == bucket && s.key >= from {
			keys = append(keys, s.key)
		}
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}

type row struct {
	key   string
	value []byte
}

// page reads some of the durable records of a bucket.
func (t *transaction) page(bucket store.Bucket, comparison, from string, size int) ([]row, error) {
	rows, err := t.from.Query(t.ctx, `SELECT key, value FROM sandbox_record WHERE broker = $1 AND bucket = $2 AND key `+comparison+` $3 ORDER BY key LIMIT `+strconv.Itoa(size),
		t.broker, string(bucket), []byte(from))
	if err != nil {
		return nil, unavailable(err)
	}
	page, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (row, error) {
		var key []byte
		var value *string
		if err := r.Scan(&key, &value); err != nil {
			return row{}, err
		}
		found := row{key: string(key)}
		if value != nil {
			found.value = []byte(*value)
		}
		return found, nil
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return page, nil
}

// numbers is the bucket with the last number of each bucket that counts.
const numbers store.Bucket = "numbers"

// Next implements store.Tx.
func (t *transaction) Next(bucket store.Bucket) (uint64, error) {
	text, err := t.Get(numbers, string(bucket))
	if err != nil {
		return 0, err
	}
	var last uint64
	if text != nil {
		if last, err = strconv.ParseUint(string(text), 10, 64); err != nil {
			return 0, fmt.Errorf("the last number of %s: %w", bucket, err)
		}
	}
	return last + 1, t.Skip(bucket, last+1)
}

// Skip implements store.Tx.
func (t *transaction) Skip(bucket store.Bucket, last uint64) error {
	return t.Put(numbers, string(bucket), strconv.AppendUint(nil, last, 10))
}

// OnCommit implements store.Tx.
func (t *transaction) OnCommit(then func()) { t.then = append(t.then, then) }
