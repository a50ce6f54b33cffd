package quota

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Record is what a tenant has used of its day and its month, with what was reserved
// when it was written: after a crash all of that counts as used.
type Record struct {
	// Version grows with each change. Of two records of a tenant the higher one is later.
	Version       uint64        `json:"version,omitempty"`
	Day           string        `json:"day"` // of UTC, 2006-01-02
	Executions    int64         `json:"executions"`
	ExecutionTime time.Duration `json:"execution_ns"`
	MoneyDay      Money         `json:"money_day"`
	Month         string        `json:"month"` // of UTC, 2006-01
	MoneyMonth    Money         `json:"money_month"`
}

// Journal keeps records, by the name of the tenant, with the last line of the log that
// they have what was noted up to.
type Journal interface {
	Load() (map[string]Record, Position, error)
	// Save replaces these records and returns when that is durable, or an error
	// when nothing of it was done. Errors carry SB009.
	Save(ctx context.Context, records map[string]Record, upTo Position) error
}

// saveRetry is when the journal is tried again that could not be written.
const saveRetry = time.Second

// settleDelay is how long a settlement waits for company: nobody waits for it, and
// the next reservation shall not wait for it either. After a crash what ended in
// that time counts as it was reserved.
const settleDelay = 100 * time.Millisecond

// advanceEvery is how often the journal gets the line that the log is at, where nothing
// else changes: a start reads what is behind it, and the files before it may be moved away.
const advanceEvery = time.Minute

// books writes the journal: all that has changed meanwhile at once, so that those
// who wait for it wait for the disk together.
type books struct {
	journal Journal
	logger  hclog.Logger
	records func(tenants []string) map[string]Record
	// advanceEvery is what the constant says, or a test.
	advanceEvery time.Duration

	mu      sync.Mutex
	dirty   map[string]bool
	waiting []chan error
	log     Log // nil without one
	// written is the line of log that the journal has; the zero value is none.
	written Position
	// failed says that the last attempt to write failed, and since when there is something
	// that is not written; zero if all is.
	failed bool
	since  time.Time

	wake    chan struct{} // somebody waits
	settle  chan struct{} // nobody does
	closing chan struct{}
	closed  chan struct{}
}

func newBooks(opts Options, records func([]string) map[string]Record) *books {
	b := &books{
		journal: opts.Journal, logger: opts.Logger, records: records,
		advanceEvery: cmp.Or(opts.AdvanceEvery, advanceEvery),
		dirty:        map[string]bool{},
		wake:         make(chan struct{}, 1),
		settle:       make(chan struct{}, 1),
		closing:      make(chan struct{}),
		closed:       make(chan struct{}),
	}
	if b.logger == nil {
		b.logger = hclog.NewNullLogger()
	}
	go b.keep()
	return b
}

// changed has a tenant's record written soon; nobody waits for it.
func (b *books) changed(tenant string) {
	b.mu.Lock()
	b.soil(tenant)
	b.mu.Unlock()
	ring(b.settle)
}

// soil has a tenant's record written. The caller holds mu.
func (b *books) soil(tenant string) {
	b.dirty[tenant] = true
	if b.since.IsZero() {
		b.since = time.Now()
	}
}

// settled returns when a tenant's record is durable as it is now.
func (b *books) settled(ctx context.Context, tenant string) error {
	outcome := make(chan error, 1)
	b.mu.Lock()
	b.soil(tenant)
	b.waiting = append(b.waiting, outcome)
	b.mu.Unlock()
	ring(b.wake)
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closed:
		return shuttingDown()
	}
}

func shuttingDown() error { return sdk.Errorf(sdk.CodeUnavailable, "the broker is shutting down") }

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
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
	// later is when to write what nobody waits for.
	later := time.NewTimer(settleDelay)
	defer later.Stop()
	set := true
	advance := time.NewTicker(b.advanceEvery)
	defer advance.Stop()
	for failed := false; ; {
		select {
		case <-b.settle:
			if !set {
				later.Reset(settleDelay)
				set = true
			}
			continue
		case <-b.wake:
		case <-later.C:
			set = false
		case <-advance.C:
		case <-b.closing:
			_ = b.save() // what is on disk then counts too much, never too little
			return
		}
		err := b.save()
		if err != nil && !failed {
			b.logger.Error("what the tenants use cannot be written; nothing is admitted until it can", "error", err)
		}
		if failed = err != nil; failed {
			later.Reset(saveRetry)
			set = true
		}
	}
}

// save writes what has changed.
func (b *books) save() (err error) {
	began := time.Now()
	b.mu.Lock()
	// The line comes before the records: what it and those before it note is in them.
	upTo := positionOf(b.log)
	tenants := slices.Collect(maps.Keys(b.dirty))
	waiting := b.waiting
	nothing := len(tenants) == 0 && upTo == b.written
	clear(b.dirty)
	b.waiting = nil
	b.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while writing what the tenants use: %v", r)
		}
		b.mu.Lock()
		b.failed = err != nil
		if err == nil {
			b.written = upTo
		}
		switch {
		case err != nil:
			for _, tenant := range tenants {
				b.dirty[tenant] = true
			}
		case len(b.dirty) == 0:
			b.since = time.Time{}
		default:
			b.since = began
		}
		b.mu.Unlock()
		for _, outcome := range waiting {
			outcome <- err
		}
	}()
	if nothing {
		return nil
	}
	return b.journal.Save(context.Background(), b.records(tenants), upTo)
}
