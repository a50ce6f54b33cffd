package executions

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// State of an execution.
type State string

// The states.
const (
	Running State = "running"
	// Succeeded and Failed have come to their end: Failed also by a limit, by a code
	// policy, or since they could not be begun.
	Succeeded State = "succeeded"
	Failed    State = "failed"
	// Interrupted ones were ended by somebody.
	Interrupted State = "interrupted"
	// Unknown ones may have run, and nobody knows how far: their provider or the broker
	// has ended meanwhile.
	Unknown State = "unknown"
)

// Info is how an execution stands.
type Info struct {
	ID       string
	Detached bool
	State    State
	// Instance and Provider are empty before it has begun.
	Instance, Provider string
	// Started and Ended are zero before.
	Created, Started, Ended time.Time
	// Last is the event that it has ended with, zero before that, and of those that are
	// Unknown since the broker ended.
	Last Event
	// Result is what main returned; nil for nothing.
	Result json.RawMessage
	// First is the number of the first event that is kept, Next that of the one to come.
	First, Next int64
	// Webhook says how its delivery stands; empty for none.
	Webhook string
}

// Outcome is what became of an execution.
type Outcome struct {
	State  State
	Last   Event // its Number is the keeper's
	Result json.RawMessage
}

// Execution is one that a keeper remembers.
type Execution struct {
	keeper *Keeper
	key    key
	// since tells its tenant from one that had the name before; loaded ones are of those
	// that were there at the start.
	since  int
	loaded bool
	// nonce tells it from others that had its ID before.
	nonce    string
	detached bool
	webhook  string
	cancel   func(error)

	// The keeper guards the rest.
	log     log
	info    Info
	replace *Execution // what has had its ID, until it has begun
	// unsaved says that the state file has not got its end yet, and saving that it is
	// about to. hook is the ID of the report; empty as long as there is none.
	unsaved, saving bool
	hook            string
	gone            bool // it is forgotten
}

type key struct{ tenant, id string }

func (k key) String() string { return k.tenant + "\x00" + k.id }

// EventID names one of its events, as Keeper.ParseEventID reads it.
func (x *Execution) EventID(number int64) string { return eventID(x.nonce, number) }

// Info says how it stands.
func (x *Execution) Info() Info {
	x.keeper.mu.Lock()
	defer x.keeper.mu.Unlock()
	return x.snapshot()
}

// snapshot is Info for who holds the lock.
func (x *Execution) snapshot() Info {
	info := x.info
	info.ID, info.Detached = x.key.id, x.detached
	info.First, info.Next = x.log.first(), x.log.next
	return info
}

// Append adds an event. What is too much for the log makes it forget the oldest ones.
func (x *Execution) Append(name string, data []byte) (number int64) {
	k := x.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.append(x, name, data)
}

// Begins notes where it is about to run. Of a detached one the state file has that when
// Begins returns.
func (x *Execution) Begins(ctx context.Context, instance, provider string) error {
	k := x.keeper
	k.mu.Lock()
	x.info.Instance, x.info.Provider = instance, provider
	if x.info.Started.IsZero() {
		x.info.Started = k.now()
	}
	k.settle(x)
	k.mu.Unlock()
	if !x.detached {
		return nil
	}
	return k.save(ctx, x, nil)
}

// Taken says that it is taken on: what has had its ID before is forgotten.
func (x *Execution) Taken() {
	x.keeper.mu.Lock()
	defer x.keeper.mu.Unlock()
	x.keeper.settle(x)
}

// End notes what became of it, with its last event, whose number it returns.
func (x *Execution) End(outcome Outcome) int64 {
	k := x.keeper
	k.mu.Lock()
	k.end(x, outcome)
	number := x.info.Last.Number
	k.mu.Unlock()
	if x.detached {
		k.saveEnd(x)
	}
	return number
}

// Abandon forgets one that was refused, as if it had never been.
func (x *Execution) Abandon() {
	k := x.keeper
	k.mu.Lock()
	k.forget(x)
	old := x.replace
	if old != nil && k.all[x.key] == nil && !old.gone {
		k.all[x.key] = old
	} else {
		old = nil
	}
	k.mu.Unlock()
	if x.detached {
		k.erase(x.key)
		k.restore(old)
	}
}

// Cancel ends it where it is, for one that has not begun.
func (x *Execution) Cancel(cause error) { x.cancel(cause) }

// Forgotten reports whether it is remembered no longer.
func (x *Execution) Forgotten() bool { return x.keeper.forgotten(x) }

// errForgotten is told to who reads when there is nothing to read any more.
var errForgotten = sdk.Errorf(sdk.CodeNotFound, "the execution is forgotten: its time is over, or another one has its ID now")

// readBytes is how much Read returns at a time.
const readBytes = 256 << 10

// Read returns the events behind that number, some at a time, and how many before these
// are not kept any more. Where there is nothing new it waits, unless the execution has
// ended: then it says so. An error is that of ctx, or SB013 for one that is forgotten.
func (x *Execution) Read(ctx context.Context, after int64) (events []Event, lost int64, ended bool, err error) {
	return x.read(ctx, after, true)
}

// ReadKept is Read that does not wait: where there is nothing new, that is the end.
func (x *Execution) ReadKept(ctx context.Context, after int64) (events []Event, lost int64, ended bool, err error) {
	return x.read(ctx, after, false)
}

func (x *Execution) read(ctx context.Context, after int64, wait bool) (events []Event, lost int64, ended bool, err error) {
	k := x.keeper
	for {
		k.mu.Lock()
		events, lost = x.log.after(after, readBytes)
		ended = x.info.State != Running
		gone, changed := x.gone, x.log.changed
		k.mu.Unlock()
		switch {
		case len(events) > 0 || lost > 0:
			return events, lost, false, nil
		case gone:
			return nil, 0, false, errForgotten
		case ended || !wait:
			return nil, 0, true, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, false, ctx.Err()
		}
	}
}
