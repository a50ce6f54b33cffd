package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ peer.Directory = (*Store)(nil)
	_ peer.Living    = (*Store)(nil)
)

// lives says of a row of sandbox_broker that its broker is not dead. The function takes several
// times as long as the rest of a query, and is called where a lease has ended.
const lives = "(b.expires_at > now() OR NOT sandbox_dead(b.expires_at))"

// OwnerOf implements peer.Directory.
func (s *Store) OwnerOf(ctx context.Context, _, id string) (peer.Peer, bool, error) {
	return s.owner(ctx, `
		SELECT b.id, b.address FROM sandbox_record r JOIN sandbox_broker b ON b.id = r.broker
		WHERE r.bucket = 'instances' AND r.key = $1 AND b.id <> $2 AND `+lives, []byte(id))
}

// OwnerOfNamed implements peer.Directory.
func (s *Store) OwnerOfNamed(ctx context.Context, instance string) (peer.Peer, bool, error) {
	return s.owner(ctx, `
		SELECT b.id, b.address FROM sandbox_record r JOIN sandbox_broker b ON b.id = r.broker
		WHERE r.bucket = 'instances' AND substring(encode(r.key, 'escape') FROM '[^:]*$') = $1 AND b.id <> $2 AND `+lives, instance)
}

// OwnerOfSession implements peer.Directory.
func (s *Store) OwnerOfSession(ctx context.Context, tenant, session string) (peer.Peer, bool, error) {
	return s.owner(ctx, `
		SELECT b.id, b.address FROM sandbox_session s JOIN sandbox_broker b ON b.id = s.broker
		WHERE s.name = $1 AND b.id <> $2 AND `+lives, tenant+":"+session)
}

// OwnerOfSnapshot implements peer.Directory.
func (s *Store) OwnerOfSnapshot(ctx context.Context, tenant, id string) (peer.Peer, bool, error) {
	return s.keeper(ctx, `
		SELECT b.id, b.address, sandbox_dead(b.expires_at) FROM sandbox_record r JOIN sandbox_broker b ON b.id = r.broker
		WHERE r.bucket = 'snapshots' AND r.key = $2 AND b.id <> $1 AND sandbox_json(r.value) ->> 'tenant' = coalesce(nullif($3, ''), sandbox_json(r.value) ->> 'tenant')
		AND (sandbox_json(r.value) ->> 'expires')::timestamptz > now() AND sandbox_json(r.value) ->> 'ending' IS NULL`, []byte(id), tenant)
}

// OwnerOfVolume implements peer.Directory.
func (s *Store) OwnerOfVolume(ctx context.Context, tenant, name string) (peer.Peer, bool, error) {
	return s.keeper(ctx, `
		SELECT b.id, b.address, sandbox_dead(b.expires_at) FROM sandbox_volume v JOIN sandbox_broker b ON b.id = v.broker
		WHERE v.tenant = $2 AND v.name = $3 AND b.id <> $1`, tenant, name)
}

// Peers implements peer.Roll.
func (s *Store) Peers(ctx context.Context) ([]peer.Peer, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT b.id, b.address FROM sandbox_broker b WHERE b.id <> $1 AND `+lives+`
		AND (b.address <> '' OR EXISTS (SELECT FROM sandbox_record r WHERE r.broker = b.id AND r.bucket IN ('instances', 'snapshots', 'volumes', 'executions')))`, s.lease.broker)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (p peer.Peer, err error) {
		err = r.Scan(&p.ID, &p.Address)
		return p, err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// Away implements peer.Roll.
func (s *Store) Away(ctx context.Context, kind, tenant string) ([]peer.Record, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT b.id, r.value FROM sandbox_broker b JOIN sandbox_record r ON r.broker = b.id
		WHERE b.id <> $1 AND sandbox_dead(b.expires_at) AND r.bucket = $2 AND ($3 = '' OR sandbox_json(r.value) ->> 'tenant' = $3)`, s.lease.broker, kind, tenant)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (one peer.Record, err error) {
		err = r.Scan(&one.Broker, &one.Value)
		return one, err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// keeper finds the broker that has something on its disk, which is the query's also while it is
// dead.
func (s *Store) keeper(ctx context.Context, query string, what ...any) (p peer.Peer, found bool, err error) {
	dead := false
	err = s.pool.QueryRow(ctx, query, append([]any{s.lease.broker}, what...)...).Scan(&p.ID, &p.Address, &dead)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return peer.Peer{}, false, nil
	case err != nil:
		return peer.Peer{}, false, unavailable(err)
	case dead:
		return peer.Peer{}, false, peer.ErrDown
	}
	return p, true, nil
}

// Lives implements peer.Living.
func (s *Store) Lives(ctx context.Context, id string) (epoch int64, alive bool, err error) {
	err = s.pool.QueryRow(ctx, `SELECT epoch, NOT sandbox_dead(expires_at) FROM sandbox_broker WHERE id = $1`, id).Scan(&epoch, &alive)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, unavailable(err)
	}
	return epoch, alive, nil
}

func (s *Store) owner(ctx context.Context, query string, what any) (p peer.Peer, found bool, err error) {
	err = s.pool.QueryRow(ctx, query, what, s.lease.broker).Scan(&p.ID, &p.Address)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return peer.Peer{}, false, nil
	case err != nil:
		return peer.Peer{}, false, unavailable(err)
	}
	return p, true, nil
}

// PeersAt says at which address this broker listens for its peers; "" for nowhere. Where the
// database is away it is said with the next renewal of the lease.
func (s *Store) PeersAt(address string) {
	s.lease.mu.Lock()
	s.lease.address = address
	s.lease.mu.Unlock()
	s.SayNow()
}

// What the tables keep from being twice.
const (
	// codeElsewhere is the SQLSTATE of a session that another broker has; the detail has that.
	codeElsewhere = "SBL02"
	// codeTooMany is the SQLSTATE of one instance too many for its tenant; the detail has how
	// many it may have.
	codeTooMany = "SBL03"
	// codeNamed is the SQLSTATE of a volume whose name another broker has; the detail has that.
	codeNamed = "SBL04"
	// codeTooMuch is the SQLSTATE of a snapshot or a volume too many for its tenant, or too large;
	// the detail has the quota.
	codeTooMuch = "SBL05"
	// oneAnswer is the index of the keys of requests.
	oneAnswer = "sandbox_one_answer"
)

// elsewhere makes of the database's objection to what other brokers have the error that says
// so. It returns nil for other errors.
func (s *Store) elsewhere(ctx context.Context, err error, changed map[slot]content) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return nil
	case refused.Code == codeElsewhere:
		return s.peerNamed(ctx, refused.Detail)
	case refused.Code == codeNamed:
		p, found, err := s.keeper(ctx, `SELECT id, address, sandbox_dead(expires_at) FROM sandbox_broker WHERE id = $2 AND id <> $1`, refused.Detail)
		if err != nil || !found {
			return cmp.Or(err, unavailable(fmt.Errorf("broker %q has it", refused.Detail)))
		}
		return peer.Elsewhere(p)
	case refused.Code == codeTooMany:
		full := sdk.Errorf(sdk.CodeQuotaExceeded, "the quota max_instances = %s does not allow more: so many are in use, on all brokers together", refused.Detail)
		full.RetryAfter = retryAfter
		return full
	case refused.Code == codeTooMuch:
		return sdk.Errorf(sdk.CodeQuotaExceeded, "the quota %s does not allow more: so much is kept, on all brokers together", refused.Detail)
	case refused.ConstraintName == oneAnswer:
		return s.answerElsewhere(ctx, changed)
	}
	return nil
}

func (s *Store) peerNamed(ctx context.Context, id string) error {
	p, found, err := s.owner(ctx, `SELECT id, address FROM sandbox_broker WHERE id = $1 AND id <> $2`, id)
	if err != nil || !found {
		return errors.Join(unavailable(fmt.Errorf("broker %q has it", id)), err)
	}
	return peer.Elsewhere(p)
}

// answerElsewhere finds out who has a key that is among the changes. What a dead broker has is
// brought over: who asks again is answered as by that one's next process.
func (s *Store) answerElsewhere(ctx context.Context, changed map[slot]content) error {
	var keys [][]byte
	for at, c := range changed {
		if at.bucket == store.Answers && !c.removed {
			keys = append(keys, []byte(at.key))
		}
	}
	p, found, err := s.owner(ctx, `
		SELECT b.id, b.address FROM sandbox_record r JOIN sandbox_broker b ON b.id = r.broker
		WHERE r.bucket = 'answers' AND r.key = ANY($1::bytea[]) AND b.id <> $2 AND `+lives+` LIMIT 1`, keys)
	if err != nil {
		return err
	}
	if found {
		return peer.Elsewhere(p)
	}
	batch := &pgx.Batch{}
	s.fence(batch)
	batch.Queue(`UPDATE sandbox_broker SET epoch = epoch + 1 WHERE sandbox_dead(expires_at)
		AND id IN (SELECT broker FROM sandbox_record WHERE bucket = 'answers' AND key = ANY($1::bytea[]) AND broker <> $2)`, keys, s.lease.broker)
	batch.Queue(`UPDATE sandbox_record r SET broker = $2 FROM sandbox_broker b
		WHERE b.id = r.broker AND sandbox_dead(b.expires_at) AND r.broker <> $2
		AND (r.bucket = 'answers' AND r.key = ANY($1::bytea[]) OR r.bucket = 'answers_by_age' AND substring(r.key FROM 9) = ANY($1::bytea[]))`, keys, s.lease.broker)
	if err := s.own.SendBatch(ctx, batch).Close(); err != nil {
		s.unclear = s.unclear || !settled(err)
		return unavailable(err)
	}
	again := sdk.Errorf(sdk.CodeUnavailable, "the broker that was asked with this Idempotency-Key before is no more; ask again for what became of the request")
	again.RetryAfter = time.Second
	return again
}
