package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sandbox-broker/sandbox-broker/broker/placement"
)

const (
	// leaseTime is how long a lease lasts that is not renewed.
	leaseTime = 5 * time.Second
	// retryPause lies between two tries to renew it while the database is away.
	retryPause = 200 * time.Millisecond
)

// lease is the right of one process to write the records of a broker.
type lease struct {
	pool   *pgxpool.Pool
	broker string
	time   time.Duration
	logger hclog.Logger
	epoch  int64
	// attempt is the number that the database takes transactions with. It is the writer's.
	attempt int64
	// reset ends all connections to the database once they are not in use.
	reset func()

	mu sync.Mutex
	// until is when it ends, by this machine's clock that never jumps: counted from before
	// the database was asked, so that it ends here before it ends there.
	until time.Time
	taken bool
	// address is where peers reach this broker.
	address string
	// load returns what it says of itself to them; nil for nothing.
	load func() placement.Load
	// draining is what the database had when the lease was taken, or has since then.
	draining bool
	lost     chan struct{} // closed when taken
}

// acquire takes the lease of a broker. It waits for the end of one that somebody else has
// and does not renew; a directory that is locked has no other living process, so its lease
// is taken over at once.
func acquire(ctx context.Context, pool *pgxpool.Pool, o Options) (*lease, error) {
	l := &lease{pool: pool, broker: o.Broker, time: o.leaseTime, logger: o.Logger, lost: make(chan struct{})}
	deadline := time.Now().Add(2 * l.time)
	for {
		err := l.take(ctx, o)
		if !errors.Is(err, pgx.ErrNoRows) {
			return l, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another broker with the ID %s uses the database; each needs a data directory of its own, and a copy of one has its broker_id", o.Broker)
		}
		if err := pause(ctx, retryPause); err != nil {
			return nil, err
		}
	}
}

func (l *lease) take(ctx context.Context, o Options) error {
	began := time.Now()
	err := l.pool.QueryRow(ctx, `
		INSERT INTO sandbox_broker AS b (id, epoch, holder, version, adoption, expires_at, started_at, knows)
		VALUES ($1, 1, $2, $3, $3, now() + $4::interval, now(), $5)
		ON CONFLICT (id) DO UPDATE SET epoch = b.epoch + 1, holder = excluded.holder, version = excluded.version, adoption = excluded.adoption,
			expires_at = excluded.expires_at, started_at = excluded.started_at, knows = excluded.knows
		WHERE b.expires_at <= now() OR b.holder = excluded.holder
		RETURNING epoch, attempt, draining`, l.broker, o.Holder, o.Version, interval(l.time), o.knows).Scan(&l.epoch, &l.attempt, &l.draining)
	if err != nil {
		return err
	}
	l.extend(began)
	return nil
}

func interval(d time.Duration) string { return fmt.Sprintf("%d milliseconds", d.Milliseconds()) }

func (l *lease) extend(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = began.Add(l.time)
}

// keep renews the lease until ctx ends or another process has it.
func (l *lease) keep(ctx context.Context) {
	away := false
	for wait := l.time / 4; pause(ctx, wait) == nil; {
		began := time.Now()
		err := l.renew(ctx)
		switch {
		case err == nil:
			l.extend(began)
			if away {
				l.logger.Info("the database of the state answers again")
			}
			away, wait = false, l.time/4
		case errors.Is(err, pgx.ErrNoRows):
			l.lose()
			return
		case ctx.Err() != nil:
			return
		default:
			if !away {
				l.logger.Warn("the database of the state does not answer; nothing new is begun once the lease of this broker is over", "error", err)
			}
			if isReadOnly(err) {
				l.reset() // the next ones may lead to another server
			}
			away, wait = true, retryPause
		}
	}
}

func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.time/2)
	defer cancel()
	l.mu.Lock()
	address, says := l.address, l.load
	l.mu.Unlock()
	var load *string
	if says != nil {
		text, err := json.Marshal(says())
		if err != nil {
			return fmt.Errorf("say to peers what this broker has: %w", err)
		}
		load = new(string(text))
	}
	batch := &pgx.Batch{}
	if _, err := l.held(); err != nil {
		// Where all leases are over it was the database that was away: the others are to have
		// time to come back too.
		batch.Queue(`
			INSERT INTO sandbox_shared AS s (name, value) SELECT 'resumed_at', now()::text WHERE NOT EXISTS (SELECT FROM sandbox_broker WHERE expires_at > now())
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`)
	}
	batch.Queue(`
		UPDATE sandbox_broker SET expires_at = now() + $3::interval, address = $4, load = $5, loaded_at = now()
		WHERE id = $1 AND epoch = $2 RETURNING epoch`, l.broker, l.epoch, interval(l.time), address, load)
	results := l.pool.SendBatch(ctx, batch)
	var err error
	for range batch.Len() - 1 {
		if _, failed := results.Exec(); failed != nil {
			err = failed
		}
	}
	var epoch int64
	if err == nil {
		err = results.QueryRow().Scan(&epoch)
	}
	return cmp.Or(err, results.Close())
}

// giveUpSent has the database refuse all transactions that were sent before, once it is done
// with those that have begun. A connection that was given up may deliver one much later: what
// was sent into it is sent again by the network, while newer connections work already.
func (l *lease) giveUpSent(ctx context.Context) error {
	l.attempt++
	// An earlier one of this kind may be on its way too, and must not count back.
	err := l.pool.QueryRow(ctx, `UPDATE sandbox_broker SET attempt = greatest(attempt, $3) WHERE id = $1 AND epoch = $2 RETURNING attempt`,
		l.broker, l.epoch, l.attempt).Scan(&l.attempt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		l.lose()
		return takenError()
	case err != nil:
		return unavailable(err)
	}
	return nil
}

// lose notes that another process has the lease, for good.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken {
		l.taken = true
		close(l.lost)
		l.logger.Error("another process has taken over the state of this broker; this one can do nothing any more", "broker", l.broker)
	}
}

// held says whether the lease is this process's, and until when. The error has SB009.
func (l *lease) held() (until time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.taken:
		return time.Time{}, takenError()
	case !time.Now().Before(l.until):
		return time.Time{}, unavailable(errExpired)
	}
	return l.until, nil
}

// release ends the lease, so that the next process need not wait.
func (l *lease) release(ctx context.Context) error {
	_, err := l.pool.Exec(ctx, `UPDATE sandbox_broker SET expires_at = now() WHERE id = $1 AND epoch = $2`, l.broker, l.epoch)
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
