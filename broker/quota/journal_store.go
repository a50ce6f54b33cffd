package quota

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// StoreJournal keeps the records in the broker's state file.
type StoreJournal struct {
	store  store.State
	logger hclog.Logger
}

var _ Journal = (*StoreJournal)(nil)

// NewStoreJournal returns the journal in a store. What it cannot read it says to
// the logger.
func NewStoreJournal(s store.State, logger hclog.Logger) *StoreJournal {
	return &StoreJournal{store: s, logger: logger}
}

// Load implements Journal. A record that cannot be read counts for nothing, rather
// than that no broker starts.
func (j *StoreJournal) Load() (records map[string]Record, upTo Position, err error) {
	records = map[string]Record{}
	err = j.store.View(func(tx store.Tx) error {
		if _, err := store.Get(tx, store.UsageLog, auditLog, &upTo); err != nil {
			j.logger.Error("up to where the audit log is counted cannot be read; what was used last is not counted", "error", err)
			upTo = Position{}
		}
		return store.Each(tx, store.Usage, func(tenant string, record Record, err error) error {
			if err != nil {
				j.logger.Error("what a tenant has used cannot be read; it is counted anew", "tenant", tenant, "error", err)
				return nil
			}
			records[tenant] = record
			return nil
		})
	})
	return records, upTo, err
}

// auditLog is the key of the one record in store.UsageLog.
const auditLog = "audit"

// Save implements Journal.
func (j *StoreJournal) Save(ctx context.Context, records map[string]Record, upTo Position) error {
	return j.store.Update(ctx, func(tx store.Tx) error {
		for tenant, record := range records {
			if err := store.Put(tx, store.Usage, tenant, record); err != nil {
				return err
			}
		}
		if upTo.Line == 0 {
			return nil
		}
		return store.Put(tx, store.UsageLog, auditLog, upTo)
	})
}
