// Package model says what several brokers on one database promise, as sequential models, and
// checks histories of what clients asked and were told against them with porcupine: whether
// there is an order of all operations, each at a moment between its call and its return, in
// which one broker that never fails would have answered the same.
//
// An answer that never came, and one that leaves open what was done, is an operation that may
// have had its effect at any time from its call on, or never. The death of an owner is an
// operation too, which may end what it had, and only while the harness knows that the others
// may count it as dead.
package model

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind of an operation.
type Kind string

// The kinds.
const (
	// Create asks for the instance of a session, or for one without a session.
	Create Kind = "create"
	// Look looks at an instance by its ID.
	Look Kind = "look"
	// Use runs code in an instance.
	Use Kind = "use"
	// Destroy ends an instance.
	Destroy Kind = "destroy"
	// Ask is a request with an Idempotency-Key.
	Ask Kind = "ask"
	// Loss is the death of an owner, as far as it counts as dead.
	Loss Kind = "loss"
)

// Outcome of an operation.
type Outcome string

// The outcomes.
const (
	// Done was confirmed.
	Done Outcome = "done"
	// Absent says that there is no such instance.
	Absent Outcome = "absent"
	// Full says that the quota does not allow more.
	Full Outcome = "full"
	// Refused says that nothing was done, for a reason that is not the model's.
	Refused Outcome = "refused"
	// Unknown leaves open whether it was done.
	Unknown Outcome = "unknown"
)

// Operation is what one client asked and was told.
type Operation struct {
	Client       int
	Kind         Kind
	Call, Return time.Time
	Outcome      Outcome
	// ID is the instance that was asked for, or that was made.
	ID string
	// Answer is what a request with a key was answered.
	Answer string
	// Broker is the owner that a Loss is of.
	Broker string
}

// History is the operations on one session, on the instances of one tenant, or with one key.
type History []Operation

// Window is a time in which a broker may count as dead with the others.
type Window struct {
	Broker   string
	From, To time.Time
}

// Truth is what the harness knows beside what clients were told.
type Truth struct {
	// Owners are the brokers of instances, by their IDs.
	Owners map[string]string
	// Windows of all brokers.
	Windows []Window
}

// dead reports whether the owner of an instance may have counted as dead at some moment of an
// operation.
func (t Truth) dead(o Operation) bool {
	for _, w := range t.Windows {
		if owner, known := t.Owners[o.ID]; (!known || owner == w.Broker) && !o.Return.Before(w.From) && !w.To.Before(o.Call) {
			return true
		}
	}
	return false
}

// input is an operation as the models get it.
type input struct {
	Operation
	// excused says that the owner may be dead: an answer "absent" may be that alone, and a look at
	// the instance may be the owner's, who does not know of its death yet.
	excused bool
	// rivals are the creations at the same time that were refused too, and the ends of a moment
	// before.
	rivals int
}

// untold is for how long other brokers may not know of an end: that one has to be cut off from
// the database just then, for as long as it gets another connection.
const untold = 3 * time.Second

// operations puts a history into porcupine's form: with the deaths of owners that fall into
// it, and without what cannot contradict anything.
func (t Truth) operations(h History) []porcupine.Operation {
	var all []porcupine.Operation
	add := func(o Operation) {
		in := input{Operation: o}
		if o.Outcome == Absent || o.Outcome == Done && o.Kind == Look {
			in.excused = t.dead(o)
		}
		if o.Outcome == Full {
			for _, other := range h {
				if other.Outcome == Full && other.Call.Before(o.Return) && o.Call.Before(other.Return) {
					in.rivals++
				}
			}
			in.rivals-- // itself
			for _, other := range h {
				if other.Kind == Destroy && other.Outcome == Done && other.Return.Before(o.Return) && o.Return.Sub(other.Return) < untold {
					in.rivals++
				}
			}
		}
		returned := o.Return.UnixNano()
		if o.Outcome == Unknown {
			returned = math.MaxInt64
		}
		all = append(all, porcupine.Operation{ClientId: o.Client, Input: in, Output: o.Outcome, Call: o.Call.UnixNano(), Return: returned})
	}
	var first, last time.Time
	clients := 0
	for _, o := range h {
		if first.IsZero() || o.Call.Before(first) {
			first = o.Call
		}
		if o.Return.After(last) {
			last = o.Return
		}
		clients = max(clients, o.Client+1)
		if o.Outcome == Refused || o.Outcome == Unknown && o.Kind != Create && o.Kind != Destroy {
			continue
		}
		add(o)
	}
	for _, w := range t.Windows {
		if w.To.Before(first) || w.From.After(last) {
			continue
		}
		add(Operation{Client: clients, Kind: Loss, Call: w.From, Return: w.To, Outcome: Done, Broker: w.Broker})
		clients++
	}
	return all
}

// check reports whether a history has an order.
func (t Truth) check(m porcupine.NondeterministicModel, h History, timeout time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(m.ToModel(), t.operations(h), timeout)
}
