package remote

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// Again makes a call that may be made twice until it succeeds, or its policy ends. worth
// says whether another try is worth it after an error, and what pause the service asks for.
func Again[T any](ctx context.Context, policy retry.Policy, worth func(error) (after time.Duration, again bool), call func(context.Context) (T, error)) (T, error) {
	return retry.Do(ctx, policy, func(ctx context.Context) (T, error) {
		value, err := call(ctx)
		if err == nil || ctx.Err() != nil {
			return value, err
		}
		if after, again := worth(err); again {
			return value, retry.Again(err, after)
		}
		return value, err
	})
}

// NotSent says that there was not even a connection.
func NotSent(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// Pause waits, or returns why not.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
