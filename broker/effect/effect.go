// Package effect is what those who cause effects and those who record them agree on,
// so that neither imports the other: the errors of an effect that could not be recorded,
// the moment at which an effect may begin, and the execution that an instance is made for.
//
// Package audit returns the errors, package instance reads them.
package effect

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The errors of a recorder.
var (
	// ErrRefused is in the error of an effect that did not happen, since it could not be
	// recorded before.
	ErrRefused = errors.New("the audit log refuses")
	// ErrUnrecorded is in the error of an effect that has happened, or may have, and
	// whose outcome the recorder could not take down.
	ErrUnrecorded = errors.New("it was done, but the audit log could not take down what became of it; look at how things are before trying again")
)

// Refused reports whether an error says that the recorder refused an effect, so that no
// provider knows of it.
func Refused(err error) bool { return errors.Is(err, ErrRefused) }

// Unrecorded reports whether an error says that the outcome of an effect is not recorded.
func Unrecorded(err error) bool { return errors.Is(err, ErrUnrecorded) }

// OfRecorder reports whether an error is the recorder's own, and not that of the effect.
func OfRecorder(err error) bool { return Refused(err) || Unrecorded(err) }

type begunKey struct{}

// WhenBegun returns a context in which begun is called when the effect is recorded and may
// happen: where the disk is slow, the time limit of what then happens begins there.
func WhenBegun(ctx context.Context, begun func()) context.Context {
	return context.WithValue(ctx, begunKey{}, begun)
}

// Begin calls what was given to WhenBegun, if anything was.
func Begin(ctx context.Context) {
	if begun, ok := ctx.Value(begunKey{}).(func()); ok {
		begun()
	}
}

type purposeKey struct{}

// MadeFor returns a context for the creation of a one-shot instance: it is made for that
// execution and destroyed after it, so that one effect covers all three. Of the request
// only the instance is not known yet.
func MadeFor(ctx context.Context, execution sdk.ExecuteRequest) context.Context {
	return context.WithValue(ctx, purposeKey{}, execution)
}

// Purpose returns what was given to MadeFor.
func Purpose(ctx context.Context) (execution sdk.ExecuteRequest, ok bool) {
	execution, ok = ctx.Value(purposeKey{}).(sdk.ExecuteRequest)
	return execution, ok
}
