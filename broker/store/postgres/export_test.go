package postgres

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// OpenFor is Open with leases of that time.
func OpenFor(ctx context.Context, o Options, leaseTime time.Duration) (*Store, error) {
	o.leaseTime = leaseTime
	return Open(ctx, o)
}

// Abandon ends the store as the end of its process does.
func (s *Store) Abandon() {
	s.close.Do(func() {
		s.line.Close()
		s.endLease()
		<-s.kept
		s.pool.Close()
		s.own.Close()
	})
}

// Down takes the tables away, version by version.
func (s *Store) Down(ctx context.Context) error {
	return s.withTables(func(t *tables) error {
		_, err := t.provider.DownTo(ctx, 0)
		return err
	})
}

// DownOne brings them back by one version.
func (s *Store) DownOne(ctx context.Context) error {
	return s.withTables(func(t *tables) error {
		_, err := t.provider.Down(ctx)
		return err
	})
}

// Up brings them up to date again.
func (s *Store) Up(ctx context.Context) error {
	return s.withTables(func(t *tables) error { return t.migrate(ctx) })
}

func (s *Store) withTables(do func(*tables) error) (err error) {
	t, err := newTables(s.pool, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return do(t)
}

// OpenWith is Open with other migrations.
func OpenWith(ctx context.Context, o Options, migrations fs.FS) (*Store, error) {
	o.migrations = migrations
	return Open(ctx, o)
}

// Migrations are those of this version, and UpTo makes the tables of an earlier one.
func Migrations() fs.FS { return migrations }

func UpTo(ctx context.Context, url string, version int64) (err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	t, err := newTables(pool, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	_, err = t.provider.UpTo(ctx, version)
	return err
}

// Exec runs a statement.
func (s *Store) Exec(ctx context.Context, sql string, arguments ...any) error {
	_, err := s.pool.Exec(ctx, sql, arguments...)
	return err
}

// QueryRow reads one value.
func (s *Store) QueryRow(ctx context.Context, sql string, into any) error {
	return s.pool.QueryRow(ctx, sql).Scan(into)
}
