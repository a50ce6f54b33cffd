package idempotency

import (
	"context"

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
	if err := a.store.View(func(tx store.Tx) error {
		keys, err := keysOf(tx, unknown)
		none = len(keys) == 0
		return err
	}); err != nil || none {
		return err
	}
	return a.store.Update(ctx, func(tx store.Tx) error {
		var removed []record
		keys, err := keysOf(tx, unknown)
		if err != nil {
			return err
		}
		for _, key := range keys {
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
func keysOf(tx store.Tx, of func(tenant string) bool) (keys []string, err error) {
	err = tx.Scan(store.Answers, "", func(key string, _ []byte) (bool, error) {
		if of(tenantIn(key)) {
			keys = append(keys, key)
		}
		return true, nil
	})
	return keys, err
}
