// Package effect is what those who cause effects and those who record them agree on,
// so that neither imports the other: the errors of an effect that could not be recorded,
// the moment at which an effect may begin, the execution that an instance is made for, and
// what of a quota is reserved for it, and the snapshot
// that it is about.
//
// Package audit returns the errors, package instance reads them.
package effect

import (
	"context"
	"encoding/json"
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

// Reservation is what was taken from a quota for effects, and may not be durable yet.
type Reservation interface {
	// Note returns what the line of an effect is to say, nil if nothing: it becomes
	// durable with the line.
	Note() json.RawMessage
	// Noted says that it is.
	Noted()
}

type reservationKey struct{}

// WithReservation returns a context for the effects that r is for: the first of them has it
// in its line, so that both wait for the disk once.
func WithReservation(ctx context.Context, r Reservation) context.Context {
	return context.WithValue(ctx, reservationKey{}, r)
}

// ReservationOf returns what was given to WithReservation, nil if nothing was.
func ReservationOf(ctx context.Context) Reservation {
	r, _ := ctx.Value(reservationKey{}).(Reservation)
	return r
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

type snapshotKey struct{}

type namedSnapshot struct{ tenant, id string }

// OfSnapshot returns a context for what is done with a snapshot, which the provider knows by
// an ID of its own: it says whose it is, and what the broker calls it.
func OfSnapshot(ctx context.Context, tenant, id string) context.Context {
	return context.WithValue(ctx, snapshotKey{}, namedSnapshot{tenant, id})
}

// SnapshotOf returns what was given to OfSnapshot.
func SnapshotOf(ctx context.Context) (tenant, id string, ok bool) {
	named, ok := ctx.Value(snapshotKey{}).(namedSnapshot)
	return named.tenant, named.id, ok
}
