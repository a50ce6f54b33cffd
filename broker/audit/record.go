package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Record is an effect that has a line in the log and may happen.
type Record struct {
	log    *Log
	id     string
	effect Effect
	began  time.Time
}

// Begin writes that an effect is about to happen, and returns when that is on disk.
// With an error the effect must not happen. It is SB009, also where ctx had a deadline and
// the disk did not have the line by then; or that of ctx, if it was cancelled and nobody
// waits any more. Else the caller must call End.
func (l *Log) Begin(ctx context.Context, effect Effect) (*Record, error) {
	if !l.detail.Load().IncludeCode {
		effect.Code = ""
	}
	effect.clip()
	r := &Record{log: l, id: "f-" + strings.ToLower(rand.Text()[:20]), began: l.options.Now()}
	e, err := newEntry(content{Event: EventBegin, EffectID: r.id, Effect: &effect}, r.began)
	if err == nil {
		err = l.await(ctx, e)
	}
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err != nil {
		l.refused.Add(1)
		coded := sdk.Errorf(sdk.CodeUnavailable, "%w", refusal(err))
		coded.RetryAfter = time.Second
		return nil, coded
	}
	failpoint.Hit(failpoint.AuditBegun)
	if begun, ok := ctx.Value(begunKey{}).(func()); ok {
		begun()
	}
	effect.Code = ""
	r.effect = effect
	return r, nil
}

type begunKey struct{}

// WhenBegun returns a context in which Begin calls begun when the line is on disk: where
// the disk is slow, the time limit of what then happens begins there.
func WhenBegun(ctx context.Context, begun func()) context.Context {
	return context.WithValue(ctx, begunKey{}, begun)
}

// Fill changes what the end's line says of the effect, where that was not known
// before.
func (r *Record) Fill(fill func(*Effect)) { fill(&r.effect) }

// End writes what became of the effect. It waits until the operating system has the
// line, and not until the disk has it. The line is synced a tenth of a second later, or
// with the next Begin.
//
//	what happens after End        what becomes of the line
//	the broker is killed          it is there
//	the machine loses power       it is lost if it was not synced: the outcome is unknown then
//	End returned SB009            the line is written when that is possible again
//
// SB009 says that the effect has happened and has no such line yet. The caller is to be
// told that, and not the outcome.
func (r *Record) End(outcome Outcome) error {
	failpoint.Hit(failpoint.AuditEnding)
	now := r.log.options.Now()
	r.effect.clip()
	outcome.clip()
	outcome.DurationMS = float64(now.Sub(r.began).Microseconds()) / 1000
	e, err := newEntry(content{Event: EventEnd, EffectID: r.id, Effect: &r.effect, Outcome: &outcome}, now)
	if err == nil {
		err = r.log.await(context.Background(), e)
	}
	failpoint.Hit(failpoint.AuditEnded)
	if err != nil {
		r.log.late.Add(1)
		return sdk.Errorf(sdk.CodeUnavailable, "%w", ErrUnrecorded)
	}
	return nil
}

// ErrUnrecorded is in the error of an effect that has happened, or may have, and
// whose outcome the log could not take down.
var ErrUnrecorded = errors.New("it was done, but the audit log could not take down what became of it; look at how things are before trying again")

var (
	errRefused = errors.New("the audit log cannot be written at the moment, and nothing is done without it")
	errTooSlow = errors.New("the audit log cannot be written in time, since the broker's disk is slow, and nothing is done without it")
)

// refusal is what callers are told of why a line was not written: that the disk is slow,
// and nothing of what else the system says.
func refusal(err error) error {
	if errors.Is(err, errSlow) {
		return errTooSlow
	}
	return errRefused
}

// Refuses reports whether an error is the log's own, and not that of the effect.
func Refuses(err error) bool {
	return errors.Is(err, errRefused) || errors.Is(err, errTooSlow) || errors.Is(err, ErrUnrecorded)
}
