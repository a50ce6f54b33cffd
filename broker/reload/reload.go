// Package reload brings changed configurations in force while the broker runs.
//
// A Reloader follows the files, and takes the changes of administrators. A transition
// starts the providers that a configuration needs, and is committed as a whole or rolled
// back as a whole. What a generation has to be handed on to is the Broker's to know; the
// generations and their providers are package generation's.
package reload

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/watch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Broker is what a configuration is in force for.
type Broker interface {
	// Apply puts a generation in force: in the catalog, and in all that goes by the one
	// before. It cannot fail.
	Apply(from, next *generation.Generation, listeners Listeners)
	// Record does something that changes the broker itself, with a line in the audit log
	// before and after. With an error it was not done. change names settings and never
	// values.
	Record(ctx context.Context, operation, change string, act func() error) error
}

// Listeners are those of new addresses. API is nil where the address stays, Metrics and Peers
// also where there shall be none.
type Listeners struct {
	API, Metrics, Peers net.Listener
	// FrontDoors are those of their own, by kind; nil as Metrics.
	FrontDoors map[string]net.Listener
}

func (l Listeners) close() {
	for _, listener := range append(slices.Collect(maps.Values(l.FrontDoors)), l.API, l.Metrics, l.Peers) {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

// Options of a Reloader.
type Options struct {
	Broker Broker
	Host   *generation.Host // and its catalog
	Logger hclog.Logger
	// Tasks are what goes on in the background until Host.Life ends.
	Tasks *background.Group
	// Load reads the files.
	Load func() (*config.Config, config.Diagnostics)
	// Listen opens an address. It is called by one transition at a time.
	Listen func(address string) (net.Listener, error)
	// Signals ask for the files to be read again, changed or not.
	Signals <-chan struct{}
	// Sharing has the other brokers agree to what the shared file says; nil where there are none.
	Sharing Sharing
}

// Reloader brings in force what the files say, whenever they have changed or somebody
// asks for it, and what administrators change.
//
// Providers that have to be started for it may take a minute. What changes meanwhile and
// starts none is not held up: it is brought in force with the providers that there are.
// So it is with what changes beside a provider that was refused.
type Reloader struct {
	Options
	history admin.History
	texts   admin.Texts
	// reading is held by who reads the files, until it is known what to do about them.
	reading sync.Mutex
	// providing has room for the one who starts providers for a next generation, saving
	// for the one administrator whose quick change is next.
	providing, saving chan struct{}
	// again has room for one: the files are to be read once more.
	again chan struct{}

	// mu is held by whoever changes the generation, for as long as that takes and no
	// longer. It guards the rest.
	mu      sync.Mutex
	watcher *watch.Watcher // nil until somebody follows
	// tried is the revision of the files that was tried last.
	tried string
	// saved is the revision that an administrator's change has made last.
	saved string
	saves int // how many there were
	// wanted is what the files say as long as their providers are not in force: they are
	// being started, by pending, or were refused.
	wanted  *config.Config
	pending *pendingReload
}

// New returns a Reloader for files whose revision is in force.
func New(revision string, options Options) *Reloader {
	return &Reloader{Options: options, tried: revision, providing: make(chan struct{}, 1), saving: make(chan struct{}, 1), again: make(chan struct{}, 1)}
}

func (r *Reloader) inForce() *generation.Generation { return r.Host.Catalog.InForce() }

// saveError is a configuration that would work and could not be written.
type saveError struct{ err error }

func (e *saveError) Error() string { return e.err.Error() }

func (e *saveError) Unwrap() error { return e.err }

// maxPlans bounds how often a reload plans anew because others were quicker.
const maxPlans = 5

var errOvertaken = sdk.Errorf(sdk.CodeConflict, "the configuration changed time and again meanwhile; try again")

// outcome of a reload.
type outcome struct {
	cfg      *config.Config // that was tried last; nil if none was
	revision string         // of the files
	change   admin.Change
	// generation that was in force when it was over; applied says whether it is its own.
	generation int
	applied    bool
	// beside says that the files want providers too that are not in force.
	beside bool
}

// run brings a new configuration in force as a whole, or not at all: with an
// error, which is config.Diagnostics where the configuration is at fault,
// everything is as it was. The configuration is saved when it is known to work, and
// before it is in force.
//
// While providers are started for it, others may bring theirs in force that start none.
// It then takes the place of what is in force by that time.
func (r *Reloader) run(ctx context.Context, from source) (outcome, error) {
	t := &transition{Reloader: r}
	defer func() { t.rollback() }()
	done := func() {}
	if from.takesTurns() {
		select {
		case r.saving <- struct{}{}:
			done = sync.OnceFunc(func() { <-r.saving })
		case <-ctx.Done():
			return t.outcome(), ctx.Err()
		}
	}
	defer func() { done() }()
	for range maxPlans {
		missing, err := r.commitIfReady(ctx, t, from)
		if err != nil || t.over {
			return t.outcome(), err
		}
		if missing != nil {
			done() // nobody else waits for providers
			err = t.start(ctx, missing)
		} else {
			err = from.Renew()
		}
		if err != nil {
			return t.outcome(), err
		}
	}
	return t.outcome(), errOvertaken
}

// commitIfReady does what takes no time. Without an error and with nothing missing the
// source has to be renewed, unless the transition is over.
func (r *Reloader) commitIfReady(ctx context.Context, t *transition, from source) (missing []*config.Provider, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !from.Fresh() {
		return nil, nil
	}
	missing = t.plan(r.inForce(), from.Config())
	t.revision = t.to.Revision
	if diags := needsRestart(t.from.Config, t.to); diags.HasErrors() {
		return nil, diags
	}
	if len(missing) > 0 {
		return missing, nil
	}
	if err := t.finish(ctx, from); err != nil {
		return nil, err
	}
	from.committed()
	if t.beside = r.wanted != nil; t.beside {
		t.revision = r.wanted.Revision
	}
	return nil, nil
}

// finish brings in force what is ready to be.
func (t *transition) finish(ctx context.Context, from source) error {
	if err := t.listen(); err != nil {
		return err
	}
	text, proposed := t.proposal()
	if _, adopted := from.(*sharedSource); adopted {
		proposed = false
	}
	if !from.written() && !proposed && t.change.Empty() {
		return t.commit()
	}
	return t.Broker.Record(ctx, audited.OpReload, cmp.Or(t.change.String(), "what the files say, to the same effect"), func() error {
		if proposed {
			if err := t.propose(ctx, text, from); err != nil {
				return err
			}
			return t.commit()
		}
		if err := from.Save(); err != nil {
			return &saveError{err}
		}
		return t.commit()
	})
}
