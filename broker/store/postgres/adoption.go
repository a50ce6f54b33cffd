package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
)

// Forsaken is an instance of a broker that is dead, which another one may go on with.
type Forsaken struct {
	// ID of the instance.
	ID string
	// Provider is the label of its provider, and Made what that calls it.
	Provider, Made string
	// Carries is the ID of the broker that the provider's instance carried when the dead one
	// adopted it; empty for one that the dead one had made.
	Carries string
}

// adoptionTimeout bounds a transaction in which instances are moved.
const adoptionTimeout = 3 * time.Second

// Dead lists the brokers that are dead, and others may adopt from. The numbers tell one death
// of a broker from its next.
func (s *Store) Dead(ctx context.Context) (deaths map[string]int64, err error) {
	return s.dead(ctx, `SELECT b.id, `+death+` FROM sandbox_broker b WHERE b.id <> $1 AND b.adoption = b.version AND sandbox_dead(b.expires_at)`, s.lease.broker)
}

// death is a number for the end of a lease.
const death = `(extract(epoch FROM b.expires_at) * 1000)::bigint`

// DeadOwner is Dead for what is sought.
func (s *Store) DeadOwner(ctx context.Context, what peer.Sought) (deaths map[string]int64, err error) {
	const of = `SELECT b.id, ` + death + ` FROM sandbox_record r JOIN sandbox_broker b ON b.id = r.broker
		WHERE b.id <> $1 AND b.adoption = b.version AND sandbox_dead(b.expires_at) AND r.bucket = 'instances' AND `
	switch {
	case what.Instance != "":
		return s.dead(ctx, of+`r.key = $2`, s.lease.broker, []byte(what.Instance))
	case what.Name != "":
		return s.dead(ctx, of+`substring(encode(r.key, 'escape') FROM '[^:]*$') = $2`, s.lease.broker, what.Name)
	}
	return s.dead(ctx, `SELECT b.id, `+death+` FROM sandbox_session s JOIN sandbox_broker b ON b.id = s.broker
		WHERE b.id <> $1 AND b.adoption = b.version AND sandbox_dead(b.expires_at) AND s.name = $2`, s.lease.broker, what.Session)
}

func (s *Store) dead(ctx context.Context, query string, arguments ...any) (map[string]int64, error) {
	deaths := map[string]int64{}
	rows, err := s.pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, unavailable(err)
	}
	var id string
	var at int64
	if _, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error { deaths[id] = at; return nil }); err != nil {
		return nil, unavailable(err)
	}
	return deaths, nil
}

// ForsakenOf lists what others may go on with of a broker that is dead: all of the sessions in
// which something is that is sought, or of all where nothing is.
func (s *Store) ForsakenOf(ctx context.Context, dead string, what peer.Sought) ([]Forsaken, error) {
	const of = ` AND ` + sessionOf + ` = ANY(ARRAY(SELECT ` + sessionOf + ` FROM sandbox_record r WHERE r.broker = $1 AND r.bucket = 'instances' AND `
	var where string
	arguments := []any{dead}
	switch {
	case what.Instance != "":
		where, arguments = of+`r.key = $2))`, append(arguments, []byte(what.Instance))
	case what.Name != "":
		where, arguments = of+`substring(encode(r.key, 'escape') FROM '[^:]*$') = $2))`, append(arguments, what.Name)
	case what.Session != "":
		where, arguments = ` AND `+sessionOf+` = $2`, append(arguments, what.Session)
	}
	rows, err := s.pool.Query(ctx, `
		SELECT encode(r.key, 'escape'), sandbox_json(r.value) ->> 'provider', sandbox_json(r.value) ->> 'made', coalesce(sandbox_json(r.value) ->> 'carries', '') FROM sandbox_record r
		WHERE r.broker = $1 AND r.bucket = 'instances' AND sandbox_adoptable(r.broker, r.value)`+where, arguments...)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Forsaken])
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// sessionOf is the session of an instance's record.
const sessionOf = `substring(encode(r.key, 'escape') FROM '^(.*):')`

// Adopt makes instances of a dead broker this one's, with their sessions, and returns their
// records as they are now. A session is with one broker, so that what the dead one had of it and
// is not listed is forgotten. Of several brokers that adopt at once each gets others; none gets
// what has changed its owner already. Where the connection breaks off they may be this broker's
// all the same, which Adopted tells.
func (s *Store) Adopt(ctx context.Context, dead string, from []Forsaken) (records [][]byte, err error) {
	until, err := s.lease.held()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, adoptionTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.own, func(tx pgx.Tx) error {
		records, err = s.adopt(ctx, tx, dead, from)
		return err
	})
	switch {
	case err == nil:
		return records, nil
	case isFenced(err):
		s.lease.lose()
		return nil, takenError()
	}
	return nil, unavailable(fmt.Errorf("adopt the instances of broker %q: %w", dead, err))
}

// adopt locks in the order in which all do: this broker, the dead one, sessions, records. It
// waits for no session that somebody else has locked.
func (s *Store) adopt(ctx context.Context, tx pgx.Tx, dead string, from []Forsaken) (records [][]byte, err error) {
	// The number of the attempt is the writer's, which may count it on at this moment.
	if _, err = tx.Exec(ctx, `SELECT sandbox_fence($1, $2)`, s.lease.broker, s.lease.epoch); err != nil {
		return nil, err
	}
	var isDead bool
	if err = tx.QueryRow(ctx, `SELECT sandbox_forsake($1)`, dead).Scan(&isDead); err != nil || !isDead {
		return nil, err
	}
	ids, labels, made := make([]string, len(from)), make([]string, len(from)), make([]string, len(from))
	carries := map[[2]string]string{}
	for n, f := range from {
		ids[n], labels[n], made[n] = f.ID, f.Provider, f.Made
		carries[[2]string{f.Provider, f.Made}] = f.Carries
	}
	// The keys are there twice so that no other record is read.
	rows, err := tx.Query(ctx, `
		WITH wanted AS (
			SELECT r.key, `+sessionOf+` AS session FROM sandbox_record r
			JOIN unnest($2::text[], $3::text[], $4::text[]) AS w (id, provider, made)
				ON r.key = decode(w.id, 'escape') AND w.provider = sandbox_json(r.value) ->> 'provider' AND w.made = sandbox_json(r.value) ->> 'made'
			WHERE r.broker = $1 AND r.bucket = 'instances' AND r.key = ANY(ARRAY(SELECT decode(id, 'escape') FROM unnest($2::text[]) AS id))
				AND sandbox_adoptable(r.broker, r.value)
		), taken AS (
			SELECT s.name FROM sandbox_session s WHERE s.broker = $1 AND s.name IN (SELECT session FROM wanted) FOR UPDATE SKIP LOCKED
		)
		SELECT r.key, r.value, taken.name FROM wanted JOIN taken ON taken.name = wanted.session
		JOIN sandbox_record r ON r.broker = $1 AND r.bucket = 'instances' AND r.key = wanted.key`, dead, ids, labels, made)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	var values []string
	sessions := map[string]int{}
	var key []byte
	var value, session string
	_, err = pgx.ForEachRow(rows, []any{&key, &value, &session}, func() error {
		changed, err := carrying(value, carries)
		keys, values = append(keys, append([]byte(nil), key...)), append(values, string(changed))
		records = append(records, changed)
		sessions[session]++
		return err
	})
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	names, counts := make([]string, 0, len(sessions)), make([]int, 0, len(sessions))
	for name, n := range sessions {
		names, counts = append(names, name), append(counts, n)
	}
	batch := &pgx.Batch{}
	batch.Queue(`UPDATE sandbox_record r SET broker = $2, value = moved.value FROM unnest($3::bytea[], $4::text[]) AS moved (key, value)
		WHERE r.broker = $1 AND r.bucket = 'instances' AND r.key = moved.key AND r.key = ANY($3::bytea[])`, dead, s.lease.broker, keys, values)
	batch.Queue(`UPDATE sandbox_session s SET broker = $1, instances = moved.count FROM unnest($2::text[], $3::int[]) AS moved (name, count)
		WHERE s.name = moved.name`, s.lease.broker, names, counts)
	batch.Queue(`DELETE FROM sandbox_record r WHERE r.broker = $1 AND r.bucket = 'instances' AND `+sessionOf+` = ANY($2::text[])`, dead, names)
	return records, tx.SendBatch(ctx, batch).Close()
}

// carrying is the record of an instance with the ID of the broker that the provider's carries.
func carrying(record string, carries map[[2]string]string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(record), &fields); err != nil {
		return nil, fmt.Errorf("the record of an instance: %w", err)
	}
	var provider, made string
	if err := errors.Join(json.Unmarshal(fields["provider"], &provider), json.Unmarshal(fields["made"], &made)); err != nil {
		return nil, fmt.Errorf("the record of an instance: %w", err)
	}
	text, err := json.Marshal(carries[[2]string{provider, made}])
	if err != nil {
		return nil, err
	}
	fields["carries"] = text
	return json.Marshal(fields)
}

// Adopted lists the records of instances that this broker has adopted.
func (s *Store) Adopted(ctx context.Context) ([][]byte, error) {
	rows, err := s.pool.Query(ctx, `SELECT value FROM sandbox_record WHERE broker = $1 AND bucket = 'instances' AND sandbox_json(value) ->> 'carries' IS NOT NULL`, s.lease.broker)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (value []byte, err error) {
		var text string
		err = r.Scan(&text)
		return []byte(text), err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// HeldInstances reports which of the instances that a provider of a label has are those of other brokers,
// dead or alive, by the last parts of their IDs, or by the provider's IDs where that part is
// empty; and of which this broker has a record with that provider's ID.
func (s *Store) HeldInstances(ctx context.Context, label string, names map[string]string) (others, own map[string]bool, err error) {
	var ids, parts []string
	for id, name := range names {
		ids, parts = append(ids, id), append(parts, name)
	}
	rows, err := s.pool.Query(ctx, `
		SELECT DISTINCT asked.id, r.broker = $1 FROM unnest($2::text[], $3::text[]) AS asked (id, name)
		JOIN sandbox_record r ON r.bucket = 'instances' AND (
			asked.name <> '' AND substring(encode(r.key, 'escape') FROM '[^:]*$') = asked.name
				AND (r.broker <> $1 OR sandbox_json(r.value) ->> 'made' = asked.id AND sandbox_json(r.value) ->> 'provider' = $4)
			OR asked.name = '' AND sandbox_json(r.value) ->> 'made' = asked.id AND sandbox_json(r.value) ->> 'provider' = $4)`, s.lease.broker, ids, parts, label)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	others, own = map[string]bool{}, map[string]bool{}
	var id string
	var is bool
	_, err = pgx.ForEachRow(rows, []any{&id, &is}, func() error {
		if is {
			own[id] = true
		} else {
			others[id] = true
		}
		return nil
	})
	if err != nil {
		return nil, nil, unavailable(err)
	}
	return others, own, nil
}
