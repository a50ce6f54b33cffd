package store

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// Keys in the bucket about, beside schemaKey.
const (
	lossKey     = "loss"
	brokerIDKey = "broker_id"
)

// Loss says that the store lacks something that an earlier one has held.
type Loss struct {
	// At is when that was found out, or when the file was restored.
	At time.Time `json:"at"`
	// What was lost, for the log.
	What string `json:"what"`
}

// NoteLoss writes down that something was lost, for as long as nobody has asked the
// providers what they have (ForgetLoss). An earlier note stays.
func NoteLoss(tx *bbolt.Tx, what string) error {
	if about.Of(tx).Get([]byte(lossKey)) != nil {
		return nil
	}
	return Put(tx, about, lossKey, Loss{At: time.Now(), What: what})
}

// Loss returns what was noted.
func (s *Store) Loss() (loss Loss, found bool, err error) {
	err = s.View(func(tx *bbolt.Tx) error {
		found, err = Get(tx, about, lossKey, &loss)
		return err
	})
	return loss, found, err
}

// ForgetLoss says that what was lost cannot do harm any more.
func (s *Store) ForgetLoss(ctx context.Context) error {
	return s.Update(ctx, func(tx *bbolt.Tx) error { return Delete(tx, about, lossKey) })
}

// BrokerID returns the ID of the broker whose state it is, empty if it was never said.
func (s *Store) BrokerID() (id string, err error) {
	err = s.View(func(tx *bbolt.Tx) error {
		id = string(about.Of(tx).Get([]byte(brokerIDKey)))
		return nil
	})
	return id, err
}

// Belong says whose state it is. It refuses that of another broker.
func (s *Store) Belong(ctx context.Context, id string) error {
	before, err := s.BrokerID()
	switch {
	case err != nil || before == id:
		return err
	case before != "":
		return fmt.Errorf("the state file %s is of another broker: it says %s, and broker_id beside it %s; put the one back that belongs to the other", s.path, before, id)
	}
	return s.Update(ctx, func(tx *bbolt.Tx) error {
		return about.Of(tx).Put([]byte(brokerIDKey), []byte(id))
	})
}
