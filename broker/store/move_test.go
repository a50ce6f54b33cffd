package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// narrow is a state that takes no more than so many bytes in one transaction, and fails for
// good after so many transactions.
type narrow struct {
	store.State
	most, left int
}

type counted struct {
	store.Tx
	bytes *int
}

func (c counted) Put(bucket store.Bucket, key string, value []byte) error {
	*c.bytes += len(value)
	return c.Tx.Put(bucket, key, value)
}

func (n *narrow) Update(ctx context.Context, change func(tx store.Tx) error) error {
	if n.left == 0 {
		return errors.New("cut off")
	}
	n.left--
	return n.State.Update(ctx, func(tx store.Tx) error {
		bytes := 0
		err := change(counted{tx, &bytes})
		if bytes > n.most {
			return fmt.Errorf("%d bytes are too many", bytes)
		}
		return err
	})
}

func openAt(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	return s
}

// What is too much for one transaction moves in several; who is cut off in between begins anew,
// and nothing is left of what the file does not have any more.
func TestALargeFileMovesInPieces(t *testing.T) {
	from, to := openAt(t), openAt(t)
	value := []byte(strings.Repeat("x", 1<<20))
	assert.NilError(t, from.Update(t.Context(), func(tx store.Tx) error {
		for n := range 20 {
			assert.NilError(t, tx.Put(store.Answers, fmt.Sprint("key", n), value))
		}
		for n := range 5000 {
			assert.NilError(t, tx.Put(store.AnswersByAge, fmt.Sprint("key", n), nil))
		}
		return tx.Skip(store.Webhooks, 7)
	}))
	_, err := store.Move(t.Context(), from, &narrow{to, 6 << 20, 3})
	assert.ErrorContains(t, err, "cut off")
	part := func() bool {
		t.Helper()
		part, err := store.PartMoved(to)
		assert.NilError(t, err)
		return part
	}
	assert.Check(t, part())
	assert.NilError(t, from.Update(t.Context(), func(tx store.Tx) error { return tx.Delete(store.Answers, "key0") }))
	moved, err := store.Move(t.Context(), from, &narrow{to, 6 << 20, -1})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(moved, 5019))
	assert.Check(t, !part())
	contents := func(s *store.Store) (all map[string]string) {
		all = map[string]string{}
		assert.NilError(t, s.View(func(tx store.Tx) error {
			for _, b := range []store.Bucket{store.Answers, store.AnswersByAge} {
				assert.NilError(t, tx.Scan(b, "", func(key string, value []byte) (bool, error) {
					all[string(b)+" "+key] = fmt.Sprint(len(value))
					return true, nil
				}))
			}
			return nil
		}))
		return all
	}
	assert.DeepEqual(t, contents(to), contents(from))
	assert.NilError(t, to.Update(t.Context(), func(tx store.Tx) error {
		next, err := tx.Next(store.Webhooks)
		assert.Check(t, is.Equal(next, uint64(8)))
		return err
	}))
}
