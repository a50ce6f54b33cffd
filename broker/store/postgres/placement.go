package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/placement"
)

var _ placement.Peers = (*Store)(nil)

// Publish has a function say what this broker has, with each renewal of the lease: about every
// second. It must not wait for anything.
func (s *Store) Publish(load func() placement.Load) {
	s.lease.mu.Lock()
	s.lease.load = load
	s.lease.mu.Unlock()
	s.SayNow()
}

// SayNow renews the lease at once. Where the database is away, what peers are to know is said
// with the next renewal.
func (s *Store) SayNow() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.lease.renew(ctx); err != nil {
		s.logger.Warn("what peers are to know of this broker is not in the database yet", "error", err)
	}
}

// loadAge is how old what a broker has published may be. Of one that has missed two renewals
// nothing is expected.
const loadAge = "3 seconds"

// Loads implements placement.Peers.
func (s *Store) Loads(ctx context.Context) ([]placement.Published, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT id, address, load, loaded_at FROM sandbox_broker
		WHERE id <> $1 AND address <> '' AND load IS NOT NULL AND expires_at > now() AND loaded_at > now() - $2::interval`, s.lease.broker, loadAge)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (placement.Published, error) {
		var id, address, load string
		var at time.Time
		if err := row.Scan(&id, &address, &load, &at); err != nil {
			return placement.Published{}, err
		}
		p := placement.Published{At: at}
		p.Peer.Peer = peer.Peer{ID: id, Address: address}
		return p, json.Unmarshal([]byte(load), &p.Load)
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// Draining reports whether the operator has taken this broker out, be it before its process
// began.
func (s *Store) Draining() bool {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	return s.lease.draining
}

// SetDraining takes this broker out, or back, and tells the peers. It is durable when it
// returns; the error has SB009, and nothing has changed then as far as is known.
func (s *Store) SetDraining(ctx context.Context, draining bool) error {
	var epoch int64
	err := s.own.QueryRow(ctx, `UPDATE sandbox_broker SET draining = $3 WHERE id = $1 AND epoch = $2 RETURNING epoch`, s.lease.broker, s.lease.epoch, draining).Scan(&epoch)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return takenError()
	case err != nil:
		return unavailable(err)
	}
	s.lease.mu.Lock()
	s.lease.draining = draining
	s.lease.mu.Unlock()
	s.SayNow()
	return nil
}
