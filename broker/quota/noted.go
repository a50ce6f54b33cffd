package quota

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
)

// Log is where what is reserved for an effect becomes durable with the line of the
// effect; audit.Log is it.
type Log interface {
	// Position is the last line that is durable, by its number and its hash.
	Position() (line uint64, hash string)
	// UsageSince calls visit with what was noted behind a line. found is false if the log
	// does not have that line.
	UsageSince(line uint64, hash string, visit func(usage json.RawMessage)) (found bool, err error)
}

// Position is a line of the log; the zero value is none.
type Position struct {
	Line uint64 `json:"line"`
	Hash string `json:"hash"`
}

func positionOf(log Log) (p Position) {
	if log != nil {
		p.Line, p.Hash = log.Position()
	}
	return p
}

// usage is a record as it stands in the log.
type usage struct {
	Tenant string `json:"tenant"`
	Record
}

// late is how long a change may wait to be written before nothing more is left to the log.
const late = time.Second

// Follow takes from the log what the last run noted there and did not come to write, and
// leaves to the log what is granted from now on, where that is asked for. It comes before
// everything but NewKeeper. Without a journal it does nothing. While the journal cannot be
// written nothing is left to the log.
func (k *Keeper) Follow(ctx context.Context, log Log) {
	if k.books == nil {
		return
	}
	var changed []string
	if from := k.written; from.Line > 0 {
		found, err := log.UsageSince(from.Line, from.Hash, func(text json.RawMessage) {
			var noted usage
			if json.Unmarshal(text, &noted) == nil && k.takeOver(noted) {
				changed = append(changed, noted.Tenant)
			}
		})
		switch {
		case err != nil:
			k.books.logger.Error("not all that the tenants used last can be read from the audit log; the rest is not counted", "error", err)
		case !found:
			k.books.logger.Warn("the audit log is not the one of the last run, or was cut; of what the tenants used in its last moments, what the state file lacks is not counted")
		}
	}
	k.books.follow(ctx, log, changed)
}

// takeOver replaces what is known of a tenant if the log knows something later.
func (k *Keeper) takeOver(noted usage) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.accounts[noted.Tenant]; a != nil && noted.Version <= a.used.Version {
		return false
	}
	a := k.account(noted.Tenant)
	a.used, a.rolls = noted.Record, time.Time{} // the record's day may be over
	k.version = max(k.version, noted.Version)
	return true
}

// Reservation is what a grant has taken of the day and the month and is not durable yet.
// It is an effect.Reservation.
type Reservation struct {
	keeper  *Keeper
	account *account
	durable bool // guarded by Keeper.mu
}

// Note returns what the tenant has used with all that is reserved; nil if what this
// reservation took is durable.
func (r *Reservation) Note() json.RawMessage {
	k, a := r.keeper, r.account
	k.mu.Lock()
	now := usage{a.tenant, a.used}
	counts := !r.durable && k.accounts[a.tenant] == a // else the tenant is gone, and so is what it used
	k.mu.Unlock()
	if !counts {
		return nil
	}
	text, err := json.Marshal(now)
	if err != nil {
		panic(err) // it has numbers and two dates
	}
	return text
}

// Noted says that what Note returned is durable.
func (r *Reservation) Noted() {
	r.keeper.mu.Lock()
	r.durable = true
	r.keeper.mu.Unlock()
	failpoint.Hit(failpoint.QuotaNoted)
}

// follow has the records of tenants written with the line that log is at, and returns when
// that was tried.
func (b *books) follow(ctx context.Context, log Log, tenants []string) {
	tried := make(chan error, 1)
	b.mu.Lock()
	b.log = log
	for _, tenant := range tenants {
		b.soil(tenant)
	}
	b.waiting = append(b.waiting, tried)
	b.mu.Unlock()
	ring(b.wake)
	select {
	case <-tried: //nolint:errcheck // keep has told of a failure, and goes on trying
	case <-ctx.Done():
	case <-b.closed:
	}
}

// leaves reports whether something may be left to the log: as long as what changes comes
// to be written in time, so that the refusals of a disk that is full or broken are not put
// off.
func (b *books) leaves() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.written.Line > 0 && !b.failed && (b.since.IsZero() || time.Since(b.since) < late)
}
