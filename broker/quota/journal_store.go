package quota

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// StoreJournal keeps the records in the broker's state file.
type StoreJournal struct {
	store  *store.Store
	logger hclog.Logger
}

var _ Journal = (*StoreJournal)(nil)

// NewStoreJournal returns the journal in a store. What it cannot read it says to
// the logger.
func NewStoreJournal(s *store.Store, logger hclog.Logger) *StoreJournal {
	return &StoreJournal{store: s, logger: logger}
}

// Load implements Journal. A record that cannot be read counts for nothing, rather
// than that no broker starts.
func (j *StoreJournal) Load() (map[string]Record, error) {
	records := map[string]Record{}
	err := j.store.View(func(tx *bbolt.Tx) error {
		return store.Each(tx, store.Usage, func(tenant string, record Record, err error) error {
			if err != nil {
				j.logger.Error("what a tenant has used cannot be read; it is counted anew", "tenant", tenant, "error", err)
				return nil
			}
			records[tenant] = record
			return nil
		})
	})
	return records, err
}

// Save implements Journal.
func (j *StoreJournal) Save(ctx context.Context, records map[string]Record) error {
	return j.store.Update(ctx, func(tx *bbolt.Tx) error {
		for tenant, record := range records {
			if err := store.Put(tx, store.Usage, tenant, record); err != nil {
				return err
			}
		}
		return nil
	})
}
