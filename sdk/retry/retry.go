// Package retry repeats calls to a service that may succeed later, for providers
// that talk to one: with pauses that grow and are spread at random, as long as the
// service asks for (Retry-After), and never beyond the end of the context.
//
// Do repeats what fails with an *sdk.Error whose code is retryable, HTTP repeats
// requests. Neither knows what a call does at the service: whether it may be made
// twice is for the caller to say. Never repeat an execution whose answer was lost,
// since the code may have run. Effect remembers, for a creation that failed, whether
// one of its attempts may have made something.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Policy bounds the patience. The zero value is a good one.
type Policy struct {
	// Attempts is the most calls that are made, the first included; 4 by default.
	Attempts int
	// Min is the pause after the first attempt, 200 ms by default, and Max the
	// longest, 5 s by default. Pauses double in between, each is spread by a half
	// either way.
	Min, Max time.Duration
	// MaxAfter is the longest that the service may ask to wait, 30 s by default. If
	// it asks for more, the call fails at once, and whoever made it is told how long
	// to wait.
	MaxAfter time.Duration
}

func (p Policy) withDefaults() Policy {
	if p.Attempts <= 0 {
		p.Attempts = 4
	}
	if p.Min <= 0 {
		p.Min = 200 * time.Millisecond
	}
	if p.Max <= 0 {
		p.Max = 5 * time.Second
	}
	if p.MaxAfter <= 0 {
		p.MaxAfter = 30 * time.Second
	}
	return p
}

// Do calls attempt until it succeeds, fails for good or was called often enough,
// and returns what the last call did. An error may be followed by another attempt
// if there is an *sdk.Error in its chain whose code is retryable (Code.Info), or
// Again has marked it; the pause is then at least its RetryAfter. An attempt that
// could only begin after the deadline of ctx is not waited for. If ctx is cancelled
// during a pause, the error is the cause of that.
func Do[T any](ctx context.Context, p Policy, attempt func(context.Context) (T, error)) (T, error) {
	p = p.withDefaults()
	value, err := backoff.Retry(ctx, func() (T, error) {
		value, err := attempt(ctx)
		return value, p.judge(ctx, err)
	}, backoff.WithBackOff(p.pauses(ctx)), backoff.WithMaxTries(uint(p.Attempts)), backoff.WithMaxElapsedTime(0))
	return value, original(err)
}

// Again marks an error after which another attempt makes sense, not before after
// has passed; 0 leaves the pause to the policy. Nil gives nil.
func Again(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &again{err, after}
}

type again struct {
	error
	after time.Duration
}

func (a *again) Unwrap() error { return a.error }

// wants says whether an error asks for another attempt, and when.
func wants(err error) (after time.Duration, yes bool) {
	if a, ok := errors.AsType[*again](err); ok {
		return a.after, true
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.RetryAfter, e.Code.Info().Retryable
	}
	return 0, false
}

// judge tells the library what to do about an error.
func (p Policy) judge(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	after, yes := wants(err)
	deadline, bounded := ctx.Deadline()
	switch {
	case !yes, after > p.MaxAfter, bounded && time.Until(deadline) <= after:
		return backoff.Permanent(err)
	case after > 0:
		// All that were refused together shall not come back together.
		return &later{err, &backoff.RetryAfterError{Duration: after + rand.N(p.Min)}}
	default:
		return err
	}
}

// later is an error with a pause.
type later struct {
	error
	pause *backoff.RetryAfterError
}

func (l *later) Unwrap() []error { return []error{l.error, l.pause} }

// original takes off what judge has put around an error.
func original(err error) error {
	if l, ok := errors.AsType[*later](err); ok {
		err = l.error
	}
	if p, ok := errors.AsType[*backoff.PermanentError](err); ok {
		err = p.Err
	}
	if a, ok := err.(*again); ok { //nolint:errorlint // only what Again itself returned
		err = a.error
	}
	return err
}

// pauses grow up to the end of the context.
type pauses struct {
	*backoff.ExponentialBackOff
	ctx context.Context
}

func (p Policy) pauses(ctx context.Context) backoff.BackOff {
	return pauses{&backoff.ExponentialBackOff{InitialInterval: p.Min, MaxInterval: p.Max, Multiplier: 2, RandomizationFactor: 0.5}, ctx}
}

// NextBackOff implements backoff.BackOff.
func (p pauses) NextBackOff() time.Duration {
	pause := p.ExponentialBackOff.NextBackOff()
	if deadline, ok := p.ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return backoff.Stop
	}
	return pause
}
