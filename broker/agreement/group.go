package agreement

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Generation is a text that was proposed, and what became of it.
type Generation struct {
	ID     int64
	Number int64
	Text   []byte
	// Proposer is the ID of a broker.
	Proposer string
	State    State
	// Reason why it was refused.
	Reason string
}

// State of a generation.
type State string

// The states. The last two are final.
const (
	Open      State = "open"
	Committed State = "committed"
	Refused   State = "refused"
)

// Store is the database. Its errors have codes.
type Store interface {
	// Current is the generation that was committed last, and Proposed the one that is open and
	// on which this broker has not voted; both may be the zero value.
	Look(ctx context.Context) (current, proposed Generation, err error)
	// First commits a text as generation 1 where there is none, and returns the current one.
	First(ctx context.Context, text []byte) (Generation, error)
	// Propose opens a generation behind a number, with the vote of this broker. The error is
	// SB014 where another one is open, or that number is not the current one.
	Propose(ctx context.Context, behind int64, text []byte, within time.Duration) (Generation, error)
	// Vote says no with a reason, and yes with "".
	Vote(ctx context.Context, id int64, reason string) error
	// Decide says what has become of a generation.
	Decide(ctx context.Context, id int64) (Generation, error)
	// Withdraw refuses one that is open, and says what has become of it.
	Withdraw(ctx context.Context, id int64, reason string) (Generation, error)
	// Joined says which generation is in force on this broker.
	Joined(ctx context.Context, number int64) error
	// Left says that this broker shares nothing.
	Left(ctx context.Context) error
}

// Broker is what the texts are in force on.
type Broker interface {
	// Adopt tries a text out and calls decide when it is known to work: without an error of
	// that the text comes in force, before this broker proposes another one, and with one all
	// stays as it is. It returns the error of decide, or what is wrong with the text here, also
	// where that is known after decide.
	Adopt(ctx context.Context, number int64, text []byte, decide func(context.Context) error) error
}

const (
	// lookEvery is how often a broker looks for what others propose.
	lookEvery = 500 * time.Millisecond
	// decideEvery is how often it looks what has become of a proposal.
	decideEvery = 100 * time.Millisecond
	// patience is how long all brokers together may take to answer: they start plugins.
	patience = 90 * time.Second
	// grace is for a database that does not answer at the end of that.
	grace = 10 * time.Second
	// askTimeout bounds one question to the database.
	askTimeout = 5 * time.Second
	// adoptEvery is how often a broker tries again what was committed and does not work on it.
	adoptEvery = 15 * time.Second
)

// RefusedError says that the brokers did not agree.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string {
	return "the brokers that share the configuration did not agree: " + e.Reason
}

// Options of a Group.
type Options struct {
	Store  Store
	Logger hclog.Logger
	// Patience is how long the brokers may take to answer; 90 s unless given.
	Patience time.Duration
}

// Group is the brokers that share a configuration, seen from one of them. Its methods may be
// called concurrently.
type Group struct {
	store    Store
	logger   hclog.Logger
	patience time.Duration
	// inForce is the number of the generation that is in force here, newest the one that was
	// committed last.
	inForce, newest atomic.Int64
}

// NewGroup returns a group in which a generation is in force here.
func NewGroup(inForce int64, o Options) *Group {
	g := &Group{store: o.Store, logger: o.Logger, patience: o.Patience}
	if g.patience == 0 {
		g.patience = patience
	}
	g.inForce.Store(inForce)
	g.newest.Store(inForce)
	return g
}

// Numbers are that of the generation that is in force here, and of the newest that is to be.
func (g *Group) Numbers() (inForce, newest int64) { return g.inForce.Load(), g.newest.Load() }

// Propose calls then when all brokers that live have agreed to a text: it is to come in force
// here too. The error is that of then; a RefusedError where they have not agreed; SB014 where
// another proposal was first; SB009 where nobody knows what they have decided. After that, and
// after an error of then, Follow brings in force what they have.
func (g *Group) Propose(ctx context.Context, text []byte, then func() error) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	proposed, err := g.store.Propose(asking, g.inForce.Load(), text, g.patience)
	if err != nil {
		return err
	}
	g.logger.Info("the other brokers are asked for a configuration", "shared_generation", proposed.Number)
	decided, err := g.await(ctx, proposed.ID)
	if err != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		// It may have been decided in this very moment.
		if decided, err = g.store.Withdraw(ending, proposed.ID, "it was given up by who proposed it"); err != nil {
			return err
		}
	}
	if decided.State != Committed {
		return &RefusedError{decided.Reason}
	}
	if err := then(); err != nil {
		return err
	}
	g.adopted(decided.Number)
	return nil
}

func (g *Group) adopted(number int64) {
	g.inForce.Store(number)
	g.newest.Store(max(number, g.newest.Load()))
}

// await returns when a generation is decided.
func (g *Group) await(ctx context.Context, id int64) (Generation, error) {
	deadline := time.Now().Add(g.patience + grace)
	for {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		decided, err := g.store.Decide(asking, id)
		cancel()
		switch {
		case err == nil && decided.State != Open:
			return decided, nil
		case time.Now().After(deadline):
			return decided, cmpError(err)
		}
		if err := pause(ctx, decideEvery); err != nil {
			return decided, err
		}
	}
}

func cmpError(err error) error {
	if err != nil {
		return err
	}
	return sdk.Errorf(sdk.CodeUnavailable, "it is not known whether the brokers have agreed")
}

// Follow answers what others propose, and brings in force what was committed, until ctx ends.
func (g *Group) Follow(ctx context.Context, broker Broker) {
	defer g.leave(ctx)
	joined, failed := int64(-1), time.Time{}
	for pause(ctx, lookEvery) == nil {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		current, proposed, err := g.store.Look(asking)
		if err == nil && joined != g.inForce.Load() {
			number := g.inForce.Load()
			if err = g.store.Joined(asking, number); err == nil {
				joined = number
			}
		}
		cancel()
		if err != nil {
			continue // the store tells of a database that is away
		}
		g.newest.Store(max(current.Number, g.inForce.Load()))
		switch {
		case current.Number > g.inForce.Load() && time.Since(failed) > adoptEvery:
			failed = time.Time{}
			err := g.bringInForce(ctx, broker, current, func(context.Context) error {
				if g.inForce.Load() >= current.Number {
					return errNotCommitted // Propose was first
				}
				return nil
			})
			if errors.Is(err, errNotCommitted) {
				continue
			}
			if err != nil && ctx.Err() == nil {
				failed = time.Now()
				g.logger.Error("the configuration that the brokers share does not work on this one, which has another in force", "shared_generation", current.Number, "error", err)
			}
		case proposed.ID != 0 && proposed.Number == g.inForce.Load()+1:
			g.answer(ctx, broker, proposed)
		}
	}
}

// bringInForce raises the number while the broker is still kept from proposing, since what it
// proposes next is behind that number.
func (g *Group) bringInForce(ctx context.Context, broker Broker, decided Generation, decide func(context.Context) error) error {
	before, raised := g.inForce.Load(), false
	err := broker.Adopt(ctx, decided.Number, decided.Text, func(ctx context.Context) error {
		if err := decide(ctx); err != nil {
			return err
		}
		g.adopted(decided.Number)
		raised = true
		return nil
	})
	if err != nil && raised {
		g.inForce.CompareAndSwap(decided.Number, before) // Follow tries it again
	}
	return err
}

// leave keeps others from waiting for an answer of who has ended.
func (g *Group) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := g.store.Left(ctx); err != nil {
		g.logger.Warn("the other brokers may wait a moment for this one", "error", err)
	}
}

// errNotCommitted ends the trial of a proposal that was refused.
var errNotCommitted = sdk.Errorf(sdk.CodeConflict, "the proposal was not committed")

// answer tries a proposal out and votes.
func (g *Group) answer(ctx context.Context, broker Broker, proposed Generation) {
	voted := false
	err := g.bringInForce(ctx, broker, proposed, func(ctx context.Context) error {
		voted = true
		if err := g.vote(ctx, proposed.ID, ""); err != nil {
			return err
		}
		decided, err := g.await(ctx, proposed.ID)
		switch {
		case err != nil:
			return err
		case decided.State != Committed:
			return fmt.Errorf("%w: %s", errNotCommitted, decided.Reason)
		}
		return nil
	})
	if err != nil && !voted && ctx.Err() == nil {
		g.logger.Warn("a configuration that another broker proposes is refused", "shared_generation", proposed.Number, "broker", proposed.Proposer, "error", err)
		if err := g.vote(ctx, proposed.ID, err.Error()); err != nil {
			g.logger.Warn("the answer could not be given", "error", err)
		}
	}
}

func (g *Group) vote(ctx context.Context, id int64, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return g.store.Vote(ctx, id, reason)
}

// pause returns nil after a while, and the error of ctx where that ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
