package store

import (
	"context"
	"fmt"
	"time"
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
func NoteLoss(tx Tx, what string) error {
	if before, err := tx.Get(about, lossKey); before != nil || err != nil {
		return err
	}
	return Put(tx, about, lossKey, Loss{At: time.Now(), What: what})
}

// State is where records are: a file or a database.
type State interface {
	Update(ctx context.Context, change func(tx Tx) error) error
	View(read func(tx Tx) error) error
}

// LossOf returns what was noted in a state.
func LossOf(s State) (loss Loss, found bool, err error) {
	err = s.View(func(tx Tx) error {
		found, err = Get(tx, about, lossKey, &loss)
		return err
	})
	return loss, found, err
}

// ForgetLoss says that what was lost cannot do harm any more.
func ForgetLoss(ctx context.Context, s State) error {
	return s.Update(ctx, func(tx Tx) error { return Delete(tx, about, lossKey) })
}

// BrokerID returns the ID of the broker whose state it is, empty if it was never said.
func (s *Store) BrokerID() (id string, err error) {
	err = s.View(func(tx Tx) error {
		value, err := tx.Get(about, brokerIDKey)
		id = string(value)
		return err
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
	return s.Update(ctx, func(tx Tx) error { return tx.Put(about, brokerIDKey, []byte(id)) })
}
