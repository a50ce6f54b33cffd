package quota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Record is what a tenant has used of its day and its month, with what was reserved
// when it was written: after a crash all of that counts as used.
type Record struct {
	Day           string        `json:"day"` // of UTC, 2006-01-02
	Executions    int64         `json:"executions"`
	ExecutionTime time.Duration `json:"execution_ns"`
	MoneyDay      Money         `json:"money_day"`
	Month         string        `json:"month"` // of UTC, 2006-01
	MoneyMonth    Money         `json:"money_month"`
}

// Journal keeps records, by the name of the tenant.
type Journal interface {
	Load() (map[string]Record, error)
	// Save replaces these records and returns when that is durable, or an error
	// when nothing of it was done. Errors carry SB009.
	Save(ctx context.Context, records map[string]Record) error
}

// saveRetry is when the journal is tried again that could not be written.
const saveRetry = time.Second

// books writes the journal: all that has changed meanwhile at once, so that those
// who wait for it wait for the disk together.
type books struct {
	journal Journal
	logger  hclog.Logger
	records func(tenants []string) map[string]Record

	mu      sync.Mutex
	dirty   map[string]bool
	waiting []chan error

	wake    chan struct{}
	closing chan struct{}
	closed  chan struct{}
}

func newBooks(journal Journal, logger hclog.Logger, records func([]string) map[string]Record) *books {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	b := &books{
		journal: journal, logger: logger, records: records,
		dirty:   map[string]bool{},
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
	}
	go b.keep()
	return b
}

// changed has a tenant's record written; nobody waits for it.
func (b *books) changed(tenant string) {
	b.mu.Lock()
	b.dirty[tenant] = true
	b.mu.Unlock()
	b.ring()
}

// settled returns when a tenant's record is durable as it is now.
func (b *books) settled(ctx context.Context, tenant string) error {
	outcome := make(chan error, 1)
	b.mu.Lock()
	b.dirty[tenant] = true
	b.waiting = append(b.waiting, outcome)
	b.mu.Unlock()
	b.ring()
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *books) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// close writes what is left.
func (b *books) close() {
	close(b.closing)
	<-b.closed
}

func (b *books) keep() {
	defer close(b.closed)
	retry := time.NewTimer(saveRetry)
	defer retry.Stop()
	for failed := false; ; {
		var again <-chan time.Time
		if failed {
			retry.Reset(saveRetry)
			again = retry.C
		}
		select {
		case <-b.wake:
		case <-again:
		case <-b.closing:
			_ = b.save() // save has logged it, and what is on disk counts too much, never too little
			return
		}
		err := b.save()
		if err != nil && !failed {
			b.logger.Error("what the tenants use cannot be written; nothing is admitted until it can", "error", err)
		}
		failed = err != nil
	}
}

// save writes what has changed.
func (b *books) save() (err error) {
	b.mu.Lock()
	tenants := slices.Collect(maps.Keys(b.dirty))
	waiting := b.waiting
	clear(b.dirty)
	b.waiting = nil
	b.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while writing what the tenants use: %v", r)
		}
		if err != nil {
			b.mu.Lock()
			for _, tenant := range tenants {
				b.dirty[tenant] = true
			}
			b.mu.Unlock()
		}
		for _, outcome := range waiting {
			outcome <- err
		}
	}()
	if len(tenants) == 0 {
		return nil
	}
	return b.journal.Save(context.Background(), b.records(tenants))
}
