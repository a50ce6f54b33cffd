package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
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
// What ctx has reserved for the effect is durable then too.
// With an error the effect must not happen. It is SB009, also where ctx had a deadline and
// the disk did not have the line by then; or that of ctx, if it was cancelled and nobody
// waits any more. Else the caller must call End.
func (l *Log) Begin(ctx context.Context, what Effect) (*Record, error) {
	if err := l.allowed(); err != nil {
		return nil, err
	}
	if !l.detail.Load().IncludeCode {
		what.Code = ""
	}
	what.clip()
	reservation := effect.ReservationOf(ctx)
	if reservation != nil {
		what.Usage = reservation.Note()
	}
	r := &Record{log: l, id: "f-" + strings.ToLower(rand.Text()[:20]), began: l.options.Now()}
	e, err := newEntry(content{Event: EventBegin, EffectID: r.id, Effect: &what}, r.began)
	if err == nil {
		err = l.await(ctx, e)
	}
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err != nil {
		l.refused.Add(1)
		coded := sdk.Errorf(sdk.CodeUnavailable, "%w", refusalOf(err))
		coded.RetryAfter = time.Second
		return nil, coded
	}
	failpoint.Hit(failpoint.AuditBegun)
	if what.Usage != nil {
		reservation.Noted()
	}
	what.Code, what.Usage = "", nil
	r.effect = what
	// The disk may have taken longer than what allows it lasts.
	if err := l.allowed(); err != nil {
		_ = r.End(Outcome{Status: StatusNotBegun}) // the log owes it
		return nil, err
	}
	effect.Begin(ctx)
	return r, nil
}

// allowed says why no effect may begin.
func (l *Log) allowed() error {
	if l.options.Allowed == nil {
		return nil
	}
	if err := l.options.Allowed(); err != nil {
		l.refused.Add(1)
		return fmt.Errorf("%w (%w)", err, errNotAllowed)
	}
	return nil
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
		return sdk.Errorf(sdk.CodeUnavailable, "%w", effect.ErrUnrecorded)
	}
	return nil
}

// Tell writes one line about something that has happened already, and that nobody could have
// kept from happening by refusing the line. Where it cannot be written now it is owed, as that of
// End is; the error is SB009 then.
func (l *Log) Tell(what Effect, outcome Outcome, took time.Duration) error {
	what.clip()
	outcome.clip()
	outcome.DurationMS = float64(took.Microseconds()) / 1000
	e, err := newEntry(content{Event: EventEnd, EffectID: "f-" + strings.ToLower(rand.Text()[:20]), Effect: &what, Outcome: &outcome}, l.options.Now())
	if err == nil {
		err = l.await(context.Background(), e)
	}
	if err != nil {
		l.late.Add(1)
		return sdk.Errorf(sdk.CodeUnavailable, "%w", effect.ErrUnrecorded)
	}
	return nil
}

// refusal says why a line was not written: callers are told that the disk is slow, and
// nothing of what else the system says.
type refusal string

const (
	errRefused refusal = "the audit log cannot be written at the moment, and nothing is done without it"
	// errNotAllowed stands beside the reason, which is not the log's.
	errNotAllowed refusal = "nothing may be begun at the moment"
	errTooSlow    refusal = "the audit log cannot be written in time, since the broker's disk is slow, and nothing is done without it"
)

func refusalOf(err error) refusal {
	if errors.Is(err, errSlow) {
		return errTooSlow
	}
	return errRefused
}

func (r refusal) Error() string { return string(r) }

// Is makes it an effect.ErrRefused.
func (refusal) Is(target error) bool { return target == effect.ErrRefused }
