package idempotency

import (
	"context"

	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// Forget removes the answers of tenants that are not known, with those that are on their
// way: who gets such a name gets none of them. Those of administrators stay. Errors carry
// SB009.
func (a *Answers) Forget(ctx context.Context, known func(tenant string) bool) error {
	unknown := func(tenant string) bool { return tenant != "" && !known(tenant) }
	a.mu.Lock()
	for id := range a.running {
		if unknown(id.Tenant) {
			delete(a.running, id)
		}
	}
	a.mu.Unlock()
	none := true
	if err := a.store.View(func(tx *bbolt.Tx) error {
		none = len(keysOf(tx, unknown)) == 0
		return nil
	}); err != nil || none {
		return err
	}
	return a.store.Update(ctx, func(tx *bbolt.Tx) error {
		var removed []record
		for _, key := range keysOf(tx, unknown) {
			old, err := take(tx, key)
			if err != nil {
				return err
			}
			if old != nil {
				removed = append(removed, *old)
			}
		}
		tx.OnCommit(func() { a.exchange(removed, nil) })
		return nil
	})
}

// keysOf returns the keys of the records of such tenants. One that cannot be read is found
// by its key.
func keysOf(tx *bbolt.Tx, of func(tenant string) bool) []string {
	var keys []string
	cursor := store.Answers.Of(tx).Cursor()
	for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
		if of(tenantIn(string(k))) {
			keys = append(keys, string(k))
		}
	}
	return keys
}
