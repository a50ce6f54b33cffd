package broker

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// openState opens the state file and makes sure that it is this broker's.
func (b *broker) openState(ctx context.Context) (_ *store.Store, err error) {
	state, err := store.Open(b.state.file(), store.Options{
		Logger: b.logger.Named("state"), Expected: b.state.known,
		Purge: idempotency.PurgeSecrets,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closing(&err, state.Close)
		}
	}()
	stored, err := state.BrokerID()
	if err != nil {
		return nil, err
	}
	if err := b.state.identify(stored); err != nil {
		return nil, err
	}
	return state, state.Belong(ctx, b.state.id)
}

// forgetTimeout bounds the note that a loss is over.
const forgetTimeout = 10 * time.Second

// afterLoss says what is lost, and returns what is to be called when that can do no more
// harm; nil if nothing is.
func (b *broker) afterLoss(state *store.Store) (over func(), err error) {
	loss, found, err := state.Loss()
	if err != nil || !found {
		return nil, err
	}
	logger := b.logger.Named("state")
	logger.Warn("the broker has lost a part of its state: instances of clouds that it does not know are destroyed when they are listed, and none is made on a cloud before; requests whose Idempotency-Key was lost are carried out again, and quotas count from what is left", "what", loss.What, "since", loss.At.Format(time.RFC3339))
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
		defer cancel()
		if err := state.ForgetLoss(ctx); err != nil {
			logger.Warn("that the loss is over could not be written down", "error", err)
			return
		}
		logger.Info("all clouds have listed what they have; the loss can do no more harm")
	}, nil
}
