package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sandbox-broker/sandbox-broker/broker/disk"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/groupcommit"
)

// Options of Open.
type Options struct {
	// URL of the database, as libpq takes it: postgres://user@host/name?sslmode=verify-full.
	URL string
	// Broker is the ID of the broker whose records they are.
	Broker string
	// Holder names the directory that this process has locked, on this machine: whoever
	// held the lease with the same one has ended.
	Holder string
	// Version of the broker, for who looks into the table.
	Version string
	// Expected says that the broker has used the database before: where it does not know the
	// broker, its records count as lost (store.LossOf).
	Expected bool
	// Logger is told what becomes of the database; nil for nobody.
	Logger hclog.Logger

	// For tests.
	leaseTime  time.Duration
	migrations fs.FS

	knows int64 // the version of the tables
}

const (
	// readConnections bounds those of who reads. The writer and the lease have others: however
	// many read, and however slowly, the lease is renewed.
	readConnections = 6

	// ownConnections bounds theirs. Two are in use; but one that was given up counts for up to
	// 15 s, in which the lease has to be renewed by others.
	ownConnections = 12
	// connectTimeout bounds the making of one.
	connectTimeout = 3 * time.Second
	// closeTimeout bounds the end of the lease.
	closeTimeout = 2 * time.Second
)

// Store is the state of one broker in a database. Its methods may be called concurrently.
type Store struct {
	pool  *pgxpool.Pool // of who reads
	own   *pgxpool.Pool // of the writer and the lease
	lease *lease
	// unclear says that a transaction may still be on its way that was given up. It is the
	// writer's.
	unclear bool
	logger  hclog.Logger
	meter   *disk.Meter
	// limit says how many instances a tenant may have on all brokers together; 0 for any.
	limit atomic.Pointer[func(tenant string) int64]
	// counts says what a record counts as of what a tenant keeps; nil for nothing.
	counts atomic.Pointer[func(bucket store.Bucket, value []byte) *Kept]

	line     *groupcommit.Line[change] // where updates wait for the writer
	close    sync.Once
	endLease context.CancelFunc
	kept     chan struct{} // closed when the lease is not renewed any more
}

var _ store.State = (*Store)(nil)

// Open connects to the database, brings its tables to this version, and takes the lease of
// the broker. Close must be called.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	o.leaseTime = cmp.Or(o.leaseTime, leaseTime)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	pool, err := connect(ctx, o.URL, readConnections)
	if err != nil {
		return nil, err
	}
	own, err := connect(ctx, o.URL, ownConnections)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s := &Store{
		pool: pool, own: own, logger: o.Logger, kept: make(chan struct{}),
	}
	s.line = groupcommit.New(s.attempt, "the broker cannot write its state in time, since its database is slow")
	defer func() {
		if err != nil {
			pool.Close()
			own.Close()
		}
	}()
	tables, err := newTables(pool, o.migrations)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tables.migrate(ctx), tables.close()); err != nil {
		return nil, fmt.Errorf("bring the database of the state up to date: %w", err)
	}
	o.knows = tables.knows
	if s.lease, err = acquire(ctx, own, o); err != nil {
		return nil, fmt.Errorf("take over the state in the database: %w", err)
	}
	s.lease.reset = func() { pool.Reset(); own.Reset() }
	s.meter = disk.NewMeter(disk.Options{Of: "state database", Logger: o.Logger, Bound: s.line.Patience})
	keeping, endLease := context.WithCancel(context.Background())
	s.endLease = endLease
	go func() {
		defer close(s.kept)
		s.lease.keep(keeping)
	}()
	go s.line.Serve(nil, nil)
	if o.Expected && s.lease.epoch == 1 {
		if err := s.Update(ctx, func(tx store.Tx) error { return store.NoteLoss(tx, "the records in the database") }); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// session are the settings of each connection. With the first ones the database finds out in
// about ten seconds that a broker's machine is gone, and not in two hours: a transaction of which
// it has a part waits for the rest, and keeps everybody from taking over what that broker had. The
// next one does that for a process that stands still, whose machine goes on. With the last one who
// waits for a lock lets go of its own before its lease is over, which could not be renewed
// meanwhile. Poolers refuse these as parameters of a connection.
const session = `SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000;
	SET idle_in_transaction_session_timeout = 3000; SET lock_timeout = 2000`

// connect opens a pool and makes sure that somebody answers. The error does not repeat the
// URL, which may have a password.
func connect(ctx context.Context, url string, most int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New(`the setting state is not a URL of a PostgreSQL database, such as "postgres://broker@db.example.com/sandbox?sslmode=verify-full"`)
	}
	config.MaxConns = most
	config.ConnConfig.ConnectTimeout = cmp.Or(min(config.ConnConfig.ConnectTimeout, connectTimeout), connectTimeout)
	if config.ConnConfig.ValidateConnect == nil { // target_session_attrs has it
		// A replica that the name leads to for a while would be kept for an hour, and what is
		// read there may be old.
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, session)
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = "sandbox-broker"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database of the state: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("the database of the state cannot be reached at %s:%d: %w", config.ConnConfig.Host, config.ConnConfig.Port, err)
	}
	return pool, nil
}

// SetPatience sets how long an update may take whose caller would wait longer; 0 means
// 30 s.
func (s *Store) SetPatience(d time.Duration) { s.line.SetPatience(d) }

// Disk measures how long updates wait for the database.
func (s *Store) Disk() *disk.Meter { return s.meter }

// Held returns nil while this process may do what others may not: as long as its lease lasts.
// The error has SB009.
func (s *Store) Held() error {
	_, err := s.lease.held()
	return err
}

// Lease says of which epoch the lease of this process is, and how much of it is left.
func (s *Store) Lease() (epoch int64, left time.Duration) {
	until, err := s.lease.held()
	if err != nil {
		return s.lease.epoch, 0
	}
	return s.lease.epoch, time.Until(until)
}

// Err returns why the state can not be used any more: another process has it. nil as long as
// it can.
func (s *Store) Err() error {
	select {
	case <-s.lease.lost:
		return takenError()
	default:
		return nil
	}
}

// Lost is closed when another process has taken over the state.
func (s *Store) Lost() <-chan struct{} { return s.lease.lost }

// Shared returns what all brokers on the database have under a name: what is there, else what
// is offered, which is there from then on.
func (s *Store) Shared(ctx context.Context, name string, offered []byte) ([]byte, error) {
	var value string
	// The change to what it is already has the row returned, also one that another broker made
	// after this statement had begun.
	err := s.pool.QueryRow(ctx, `
		INSERT INTO sandbox_shared AS s (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = s.value RETURNING value`, name, string(offered)).Scan(&value)
	if err != nil {
		return nil, unavailable(err)
	}
	return []byte(value), nil
}

// View calls read with a transaction that sees all that is durable; what becomes durable
// meanwhile it may see in a part. Once the lease is over it refuses at once, as Update does:
// others may have what would be read, and callers shall not wait for a database that is away.
func (s *Store) View(read func(tx store.Tx) error) error {
	select {
	case <-s.line.Closing():
		return groupcommit.Closed()
	default:
	}
	if err := s.Held(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.line.Patience())
	defer cancel()
	return read(&transaction{ctx: ctx, from: s.pool, broker: s.lease.broker})
}

// Update calls change with a transaction and returns when what it did is durable, or an error
// when it is not known to be. It is as store.Store's, and so are the rules for change. An
// error with SB009 says that the database is away or slow, or that the lease is over; when
// the connection was lost in that moment, what change did may be durable all the same.
func (s *Store) Update(ctx context.Context, change func(tx store.Tx) error) error {
	if _, err := s.lease.held(); err != nil {
		return err
	}
	return s.line.Do(ctx, change)
}

// Close finishes the updates that have begun, refuses others, and gives the lease back. That
// the database is away then is no error: the lease ends by itself.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.line.Close()
		s.endLease()
		<-s.kept
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := s.lease.release(ctx); err != nil {
			s.logger.Warn("the lease could not be given back; it ends by itself", "error", err)
		}
		s.pool.Close()
		s.own.Close()
	})
	return nil
}
