package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/heads"
)

var _ heads.Store = (*Store)(nil)

// SignHead implements heads.Store.
func (s *Store) SignHead(ctx context.Context, seq uint64, hash string) (audit.Head, error) {
	signed, err := headsOf(ctx, s.pool, `SELECT number, broker, seq, hash, prev FROM sandbox_sign($1, $2, $3, $4)`, s.lease.broker, s.lease.epoch, int64(seq), hash) //nolint:gosec // lines are counted by one
	if err != nil {
		return audit.Head{}, unavailable(err)
	}
	return signed[0], nil
}

// LastHead implements heads.Store.
func (s *Store) LastHead(ctx context.Context) (number uint64, err error) {
	err = s.pool.QueryRow(ctx, `SELECT coalesce(max(number) FILTER (WHERE broker = $1), greatest(max(number) - 50, 0), 0) FROM sandbox_audit_head`, s.lease.broker).Scan(&number)
	if err != nil {
		return 0, unavailable(err)
	}
	return number, nil
}

// Heads implements heads.Store.
func (s *Store) Heads(ctx context.Context, behind uint64, most int) ([]audit.Head, error) {
	list, err := headsOf(ctx, s.pool, `SELECT number, broker, seq, hash, prev FROM sandbox_audit_head WHERE number > $1 ORDER BY number LIMIT $2`, int64(behind), most) //nolint:gosec // it was counted by one
	if err != nil {
		return nil, unavailable(err)
	}
	return list, nil
}

// AuditHeads reads all heads of a database, for who checks logs with them. It changes nothing
// there.
func AuditHeads(ctx context.Context, url string) ([]audit.Head, error) {
	pool, err := connect(ctx, url, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	list, err := headsOf(ctx, pool, `SELECT number, broker, seq, hash, prev FROM sandbox_audit_head ORDER BY number`)
	if err != nil {
		return nil, fmt.Errorf("read the order of the audit logs from the database: %w", err)
	}
	return list, nil
}

func headsOf(ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) ([]audit.Head, error) {
	rows, err := pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (h audit.Head, err error) {
		return h, r.Scan(&h.Number, &h.Broker, &h.Seq, &h.Hash, &h.Prev)
	})
}
