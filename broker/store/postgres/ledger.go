package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

// clockGood is how long it is taken for granted how the clock of the database goes.
const clockGood = 10 * time.Minute

// Ledger has in the table sandbox_share what each broker holds of the quotas of tenants. Its
// methods but Listen are one goroutine's at a time.
type Ledger struct {
	store *Store
	nth   int64 // of the last claim

	// theirs is what the clock of the database said at ours. It is used by one goroutine.
	theirs, ours time.Time
}

var _ quota.Ledger = (*Ledger)(nil)

// Ledger returns that of the store's broker. There must be one at a time.
func (s *Store) Ledger() *Ledger { return &Ledger{store: s, nth: s.lease.epoch << 32} }

// Holdings implements quota.Ledger.
func (l *Ledger) Holdings(ctx context.Context) ([]quota.Holding, error) {
	rows, err := l.store.own.Query(ctx, `SELECT tenant, quota, period, held, nth FROM sandbox_share WHERE broker = $1`, l.store.lease.broker)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h quota.Holding, err error) {
		var nth int64
		err = row.Scan(&h.Tenant, &h.Limit, &h.Period, &h.Held, &nth)
		l.nth = max(l.nth, nth)
		return h, err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// Hold implements quota.Ledger. It is one round trip. The lock of a tenant comes before what
// it guards is read, by a statement of its own, which sees all that was done until then.
func (l *Ledger) Hold(ctx context.Context, claims []quota.Claim) ([]quota.Holding, error) {
	s := l.store
	until, err := s.lease.held()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := l.readClock(ctx); err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	batch.Queue(`SELECT sandbox_fence($1, $2)`, s.lease.broker, s.lease.epoch)
	batch.Queue(`SELECT sandbox_lock($1)`, shareLocks(claims))
	held := make([]quota.Holding, len(claims))
	for n, c := range claims {
		l.nth++
		h := &held[n]
		h.Key = c.Key
		since := make([]time.Time, len(c.Waits))
		for n, came := range c.Waits {
			since[n] = l.theirs.Add(came.Sub(l.ours))
		}
		batch.Queue(`SELECT holds, others, slack, wanted FROM sandbox_hold($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
			s.lease.broker, l.nth, c.Tenant, string(c.Limit), c.Period, c.Most, c.Used, c.Keep, c.Want, c.Least, c.Spare, since, c.Lasting).
			QueryRow(func(row pgx.Row) error { return row.Scan(&h.Held, &h.Others, &h.Slack, &h.Wanted) })
	}
	switch err := s.own.SendBatch(ctx, batch).Close(); {
	case err == nil:
		return held, nil
	case isFenced(err):
		s.lease.lose()
		return nil, takenError()
	default:
		return nil, unavailable(err)
	}
}

// readClock reads the clock of the database now and then. When somebody came is told to other
// brokers by that one, and must not change with each claim.
func (l *Ledger) readClock(ctx context.Context) error {
	if time.Since(l.ours) < clockGood {
		return nil
	}
	began := time.Now()
	if err := l.store.own.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&l.theirs); err != nil {
		return unavailable(err)
	}
	l.ours = began
	return nil
}

// shareLocks are the numbers that stand for what tenants hold, in order. They are others than
// those of their instances.
func shareLocks(claims []quota.Claim) []int64 {
	var locks []int64
	for _, c := range claims {
		locks = append(locks, lockOf("shares:"+c.Tenant))
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

// Wanted implements quota.Ledger.
func (l *Ledger) Wanted(ctx context.Context) (keys []quota.Key, brokers int, err error) {
	batch := &pgx.Batch{}
	batch.Queue(`SELECT count(*) FROM sandbox_broker WHERE expires_at > now()`).QueryRow(func(row pgx.Row) error { return row.Scan(&brokers) })
	batch.Queue(`SELECT DISTINCT s.tenant, s.quota, s.period FROM sandbox_share s JOIN sandbox_broker b ON b.id = s.broker
		WHERE s.wanted_at > now() - interval '3 seconds' AND s.broker <> $1 AND b.expires_at > now()`, l.store.lease.broker).
		Query(func(rows pgx.Rows) (err error) {
			keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k quota.Key, err error) {
				err = row.Scan(&k.Tenant, &k.Limit, &k.Period)
				return k, err
			})
			return err
		})
	if err := l.store.own.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, unavailable(err)
	}
	return keys, brokers, nil
}

// listenPause lies between two tries to listen while the database is away.
const listenPause = time.Second

// Listen implements quota.Ledger, on a connection of its own.
func (l *Ledger) Listen(ctx context.Context, heard func()) {
	for told := false; ctx.Err() == nil; {
		err := l.listen(ctx, func() { told = false; heard() })
		if ctx.Err() == nil && !told {
			told = true
			l.store.logger.Warn("what other brokers tell through the database is not heard for the moment; it is looked up every second", "error", err)
		}
		_ = pause(ctx, listenPause) // it ends early with ctx
	}
}

func (l *Ledger) listen(ctx context.Context, heard func()) error {
	conn, err := pgx.ConnectConfig(ctx, l.store.own.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(ctx) // nothing was written on it
	}()
	if _, err := conn.Exec(ctx, session+`; LISTEN sandbox_share`); err != nil {
		return err
	}
	heard() // something may have been told before
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		heard()
	}
}
