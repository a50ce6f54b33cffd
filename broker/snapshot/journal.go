package snapshot

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// Store is where the records are; *store.Store is it.
type Store interface {
	Update(ctx context.Context, change func(tx store.Tx) error) error
	View(read func(tx store.Tx) error) error
}

// StoreJournal is a Journal in the state file.
type StoreJournal struct{ store Store }

var _ Journal = StoreJournal{}

// NewStoreJournal returns a journal.
func NewStoreJournal(s Store) StoreJournal { return StoreJournal{s} }

// Write implements Journal.
func (j StoreJournal) Write(ctx context.Context, records ...Record) error {
	return j.store.Update(ctx, func(tx store.Tx) error {
		for _, r := range records {
			if err := store.Put(tx, store.Snapshots, r.ID, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove implements Journal.
func (j StoreJournal) Remove(ctx context.Context, id string) error {
	return j.store.Update(ctx, func(tx store.Tx) error { return store.Delete(tx, store.Snapshots, id) })
}

// Load returns what the processes before this one wrote. A record that cannot be read is
// logged and dropped: its snapshot is unknown then, and deleted where it is found.
func (j StoreJournal) Load(ctx context.Context, logger hclog.Logger) (past []Record, err error) {
	var damaged []string
	err = j.store.View(func(tx store.Tx) error {
		return store.Each(tx, store.Snapshots, func(key string, r Record, err error) error {
			if err == nil && r.ID != key {
				err = fmt.Errorf("record %q of %s is that of %q", key, store.Snapshots, r.ID)
			}
			if err != nil {
				logger.Error("a snapshot is forgotten, since its record is damaged", "error", err)
				damaged = append(damaged, key)
				return nil
			}
			past = append(past, r)
			return nil
		})
	})
	if err != nil || len(damaged) == 0 {
		return past, err
	}
	return past, j.store.Update(ctx, func(tx store.Tx) error {
		for _, key := range damaged {
			if err := store.Delete(tx, store.Snapshots, key); err != nil {
				return err
			}
		}
		return nil
	})
}
