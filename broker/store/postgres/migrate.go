package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versions is the table in which goose counts.
const versions = "sandbox_schema"

// compatibleSince is the line of a migration that says which brokers can use the tables after it:
// those that know that version of the tables, and later ones. Without it only brokers that know
// the migration itself can.
var compatibleSince = regexp.MustCompile(`(?m)^-- compatible since (\d+)$`)

// tables are those of the database, as this version of the broker knows them.
type tables struct {
	pool     *pgxpool.Pool
	provider *goose.Provider
	db       *sql.DB
	// knows is the newest version, and since has the mark of each.
	knows int64
	since map[int64]int64
}

// newTables has the tables of these migrations; nil stands for those of this version. They must
// be closed.
func newTables(pool *pgxpool.Pool, from fs.FS) (*tables, error) {
	if from == nil {
		from = migrations
	}
	files, err := fs.Sub(from, "migrations")
	if err != nil {
		return nil, err
	}
	counted, err := database.NewStore(database.DialectPostgres, versions)
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	t := &tables{pool: pool, db: stdlib.OpenDBFromPool(pool), since: map[int64]int64{}}
	t.provider, err = goose.NewProvider("", t.db, files, goose.WithStore(counted), goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, t.db.Close())
	}
	for _, source := range t.provider.ListSources() {
		text, err := fs.ReadFile(files, source.Path)
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", err, t.db.Close())
		}
		since := source.Version
		if mark := compatibleSince.FindSubmatch(text); mark != nil {
			since, _ = strconv.ParseInt(string(mark[1]), 10, 64) // digits
		}
		t.since[source.Version] = since
		t.knows = max(t.knows, source.Version)
	}
	return t, nil
}

func (t *tables) close() error { return t.db.Close() }

// migrate brings the tables up to this version, one broker at a time. Newer ones stay as they
// are. The error says why this broker cannot use them, or which other one could not any more.
func (t *tables) migrate(ctx context.Context) error {
	found, err := t.version(ctx)
	switch {
	case err != nil:
		return err
	case found > t.knows:
		return t.usable(ctx, found)
	case found < t.knows:
		if err := t.othersCan(ctx, found); err != nil {
			return err
		}
	}
	if err := t.up(ctx); err != nil {
		return err
	}
	return t.mark(ctx)
}

// upTimeout bounds the wait for tables that somebody reads, as for a backup.
const upTimeout = 10 * time.Minute

// up waits for no lock for long: who would renew a lease waits behind. It tries again instead.
func (t *tables) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	for {
		_, err := t.provider.Up(ctx)
		if waited, ok := errors.AsType[*pgconn.PgError](err); !ok || waited.Code != codeWaited {
			return err
		}
		if pause(ctx, retryPause) != nil {
			return fmt.Errorf("somebody reads the tables for longer than %s, such as a backup: %w", upTimeout, err)
		}
	}
}

// version of the tables that are there; 0 for none.
func (t *tables) version(ctx context.Context) (version int64, err error) {
	there := false
	if err := t.pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, versions).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = t.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versions+` WHERE is_applied`).Scan(&version)
	return version, err
}

// usable says whether a broker that knows no more than this one can use newer tables.
func (t *tables) usable(ctx context.Context, found int64) error {
	var marked bool
	var needed int64
	err := t.pool.QueryRow(ctx, `SELECT coalesce(bool_or(version = $2), false), coalesce(max(since), 0) FROM sandbox_compatible WHERE version > $1 AND version <= $2`,
		t.knows, found).Scan(&marked, &needed)
	if err != nil {
		return err
	}
	if !marked {
		needed = found
	}
	if needed > t.knows {
		return fmt.Errorf("its tables have version %d and are for brokers that know version %d at least, and this one knows version %d: "+
			"start a later version of the broker, one that brought the tables to where they are or came after it", found, needed, t.knows)
	}
	return nil
}

// othersCan says whether all brokers that live can use the tables that they would become.
func (t *tables) othersCan(ctx context.Context, found int64) error {
	var needed int64
	for version, since := range t.since {
		if version > found {
			needed = max(needed, since)
		}
	}
	if needed <= found {
		return nil // who uses the tables as they are knows that much
	}
	if found == 0 {
		return nil // there are no tables, and nobody who uses them
	}
	var id, version string
	var knows int64
	rows, err := t.pool.Query(ctx, `SELECT b.id, b.version, coalesce((to_jsonb(b) ->> 'knows')::bigint, $1) FROM sandbox_broker b
		WHERE b.expires_at > now() AND coalesce((to_jsonb(b) ->> 'knows')::bigint, $1) < $2 LIMIT 1`, found, needed)
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		if err := rows.Scan(&id, &version, &knows); err != nil {
			return err
		}
		return fmt.Errorf("its tables have version %d, and this broker would make them version %d, which is for brokers that know version %d at least: "+
			"broker %s of version %s uses them and knows version %d. Bring that one to a later version first, or stop it", found, t.knows, needed, id, cmp.Or(version, "unknown"), knows)
	}
	return rows.Err()
}

// mark tells brokers of earlier versions which tables they can use.
func (t *tables) mark(ctx context.Context) error {
	var all, since []int64
	for version, from := range t.since {
		all, since = append(all, version), append(since, from)
	}
	_, err := t.pool.Exec(ctx, `
		INSERT INTO sandbox_compatible AS c (version, since) SELECT * FROM unnest($1::bigint[], $2::bigint[])
		ON CONFLICT (version) DO UPDATE SET since = excluded.since WHERE c.since <> excluded.since`, all, since)
	return err
}
