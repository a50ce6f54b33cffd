package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-broker/sandbox-broker/broker/agreement"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ agreement.Store = (*Store)(nil)

// maxGenerations is how many that were decided are kept, for who looks into the table.
const maxGenerations = 50

const currentGeneration = `SELECT id, number, text, proposer, state, reason FROM sandbox_generation WHERE state = 'committed' ORDER BY number DESC LIMIT 1`

// Look implements agreement.Store.
func (s *Store) Look(ctx context.Context) (current, proposed agreement.Generation, err error) {
	if current, err = s.generation(ctx, currentGeneration); err != nil {
		return current, proposed, err
	}
	proposed, err = s.generation(ctx, `
		SELECT id, number, text, proposer, state, reason FROM sandbox_generation g
		WHERE state = 'open' AND NOT EXISTS (SELECT 1 FROM sandbox_vote v WHERE v.proposal = g.id AND v.broker = $1)`, s.lease.broker)
	return current, proposed, err
}

// First implements agreement.Store.
func (s *Store) First(ctx context.Context, text []byte) (agreement.Generation, error) {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO sandbox_generation (number, text, proposer, state, expires_at)
		SELECT 1, $1, $2, 'committed', now() WHERE NOT EXISTS (SELECT 1 FROM sandbox_generation WHERE state = 'committed')
		ON CONFLICT DO NOTHING`, text, s.lease.broker)
	if err != nil {
		return agreement.Generation{}, unavailable(err)
	}
	return s.generation(ctx, currentGeneration)
}

// Propose implements agreement.Store.
func (s *Store) Propose(ctx context.Context, behind int64, text []byte, within time.Duration) (g agreement.Generation, err error) {
	if err := s.Held(); err != nil {
		return g, err
	}
	// One that nobody has decided in its time is decided now.
	if _, err := s.pool.Exec(ctx, `SELECT sandbox_decide(id) FROM sandbox_generation WHERE state = 'open'`); err != nil {
		return g, unavailable(err)
	}
	g, err = s.generation(ctx, `
		WITH proposed AS (
			INSERT INTO sandbox_generation (number, text, proposer, expires_at)
			SELECT $1 + 1, $2, $3, now() + $4::interval
			WHERE $1 = (SELECT coalesce(max(number), 0) FROM sandbox_generation WHERE state = 'committed')
			ON CONFLICT DO NOTHING RETURNING *
		), voted AS (
			INSERT INTO sandbox_vote (proposal, broker, agrees) SELECT id, $3, true FROM proposed
		)
		SELECT id, number, text, proposer, state, reason FROM proposed`, behind, text, s.lease.broker, interval(within))
	switch {
	case err != nil:
		return g, err
	case g.ID == 0:
		return g, sdk.Errorf(sdk.CodeConflict, "another broker changes the configuration that they share at this moment, or has just done so; look at it as it is and try again")
	}
	_, err = s.pool.Exec(ctx, `
		DELETE FROM sandbox_generation WHERE state <> 'open' AND id < $1
		AND number < (SELECT max(number) FROM sandbox_generation WHERE state = 'committed')`, g.ID-maxGenerations)
	if err != nil {
		return g, unavailable(err)
	}
	return g, nil
}

// Vote implements agreement.Store.
func (s *Store) Vote(ctx context.Context, id int64, reason string) error {
	if err := s.Held(); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO sandbox_vote (proposal, broker, agrees, reason) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`, id, s.lease.broker, reason == "", reason)
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// Decide implements agreement.Store.
func (s *Store) Decide(ctx context.Context, id int64) (agreement.Generation, error) {
	return s.generation(ctx, `SELECT id, number, text, proposer, state, reason FROM sandbox_decide($1)`, id)
}

// Withdraw implements agreement.Store.
func (s *Store) Withdraw(ctx context.Context, id int64, reason string) (agreement.Generation, error) {
	if _, err := s.pool.Exec(ctx, `UPDATE sandbox_generation SET state = 'refused', reason = $2 WHERE id = $1 AND state = 'open'`, id, reason); err != nil {
		return agreement.Generation{}, unavailable(err)
	}
	return s.Decide(ctx, id)
}

// Joined implements agreement.Store.
func (s *Store) Joined(ctx context.Context, number int64) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO sandbox_member (broker, number) VALUES ($1, $2)
		ON CONFLICT (broker) DO UPDATE SET number = excluded.number`, s.lease.broker, number)
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// Left implements agreement.Store.
func (s *Store) Left(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM sandbox_member WHERE broker = $1`, s.lease.broker); err != nil {
		return unavailable(err)
	}
	return nil
}

// generation reads one; the zero value where there is none.
func (s *Store) generation(ctx context.Context, query string, arguments ...any) (g agreement.Generation, err error) {
	err = s.pool.QueryRow(ctx, query, arguments...).Scan(&g.ID, &g.Number, &g.Text, &g.Proposer, &g.State, &g.Reason)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return agreement.Generation{}, nil
	case err != nil:
		return agreement.Generation{}, unavailable(err)
	}
	return g, nil
}
