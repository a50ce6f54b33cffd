package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// saveError is a configuration that would work and could not be written.
type saveError struct{ err error }

func (e *saveError) Error() string { return e.err.Error() }

func (e *saveError) Unwrap() error { return e.err }

// maxAims bounds how often a reload aims anew because others were quicker.
const maxAims = 5

var errOvertaken = sdk.Errorf(sdk.CodeConflict, "the configuration changed time and again meanwhile; try again")

// source says what is to come in force. Renew is called without broker.reloading, all
// else by who holds that.
type source interface {
	Config() *config.Config
	// Fresh reports whether that still holds; else Renew makes it so.
	Fresh() bool
	Renew() error
	// Save writes it, if there is something to save: when it is known to work, and before
	// it is in force.
	Save() error
	// takesTurns says that others of its kind wait while it is renewed, which takes no time:
	// who is always overtaken would not come to an end.
	takesTurns() bool
	// written says that there is something to save.
	written() bool
	// committed is told that it is in force.
	committed()
}

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

// reload brings a new configuration in force as a whole, or not at all: with an
// error, which is config.Diagnostics where the configuration is at fault,
// everything is as it was. The configuration is saved when it is known to work, and
// before it is in force.
//
// While providers are started for it, others may bring theirs in force that start none.
// It then takes the place of what is in force by that time.
func (b *broker) reload(ctx context.Context, from source) (outcome, error) {
	t := &transition{broker: b}
	defer func() { t.abandon() }()
	done := func() {}
	if from.takesTurns() {
		select {
		case b.saving <- struct{}{}:
			done = sync.OnceFunc(func() { <-b.saving })
		case <-ctx.Done():
			return t.outcome(), ctx.Err()
		}
	}
	defer func() { done() }()
	for range maxAims {
		missing, err := b.commitIfReady(ctx, t, from)
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
func (b *broker) commitIfReady(ctx context.Context, t *transition, from source) (missing []*config.Provider, err error) {
	b.reloading.Lock()
	defer b.reloading.Unlock()
	if !from.Fresh() {
		return nil, nil
	}
	missing = t.aim(b.catalog.generation(), from.Config())
	t.revision = t.to.Revision
	if diags := needsRestart(t.from.cfg, t.to); diags.HasErrors() {
		return nil, diags
	}
	if len(missing) > 0 {
		return missing, nil
	}
	if err := t.finish(ctx, from); err != nil {
		return nil, err
	}
	from.committed()
	if t.beside = b.files.wanted != nil; t.beside {
		t.revision = b.files.wanted.Revision
	}
	return nil, nil
}

// finish brings in force what is ready to be.
func (t *transition) finish(ctx context.Context, from source) error {
	if err := t.listen(); err != nil {
		return err
	}
	if !from.written() && t.change.Empty() {
		return t.committed()
	}
	return t.broker.recorded(ctx, audited.OpReload, cmp.Or(t.change.String(), "what the files say, to the same effect"), func() error {
		if err := from.Save(); err != nil {
			return &saveError{err}
		}
		return t.committed()
	})
}

// dryRun says what a reload would change. Plugins that would be started are, to
// check their settings, but they are not configured.
func (b *broker) dryRun(ctx context.Context, cfg *config.Config) (admin.Change, error) {
	t := &transition{broker: b}
	defer t.abandon()
	err := t.launch(ctx, t.aim(b.catalog.generation(), cfg))
	if diags := needsRestart(t.from.cfg, cfg); diags.HasErrors() {
		if launched, ok := errors.AsType[config.Diagnostics](err); ok {
			diags = diags.With(launched)
		}
		err = diags
	}
	return t.change, err
}

// replace starts another process of a provider beside the one it has, as a reload
// with the same configuration would. It is for a plugin whose file has changed.
func (b *broker) replace(ctx context.Context, label string) error {
	began := time.Now()
	t := &transition{broker: b}
	defer func() { t.abandon() }()
	if err := t.holdProviders(ctx); err != nil {
		return err
	}
	from := b.catalog.generation()
	old := from.revision(label)
	if old == nil {
		return nil // a reload has removed it meanwhile
	}
	t.to = from.cfg
	if err := t.launch(ctx, []*config.Provider{old.block}); err != nil {
		return err
	}
	if err := t.configure(ctx); err != nil {
		return err
	}
	b.reloading.Lock()
	defer b.reloading.Unlock()
	from = b.catalog.generation()
	at := slices.Index(from.current, old)
	if at < 0 {
		return nil // or given it other settings
	}
	r := t.started[0]
	t.from, t.to, t.current = from, from.cfg, slices.Clone(from.current)
	t.current[at] = r
	t.change.Providers = []admin.ProviderChange{b.replaced(admin.ProviderRestarts, old)}
	if err := b.recorded(ctx, audited.OpReplacePlugin, t.change.String(), t.committed); err != nil {
		return err
	}
	b.history.Note(admin.Reload{
		At: time.Now(), Took: time.Since(began), Trigger: admin.TriggerPlugin,
		Generation: from.number + 1, Applied: true, Revision: from.cfg.Revision, Change: t.change,
	})
	b.logger.Info("a new process of the provider has taken over", "provider", r.Label(), "version", r.Description().Version, "pid", r.State().PID)
	return nil
}

// replaced is what happens to a revision that is there.
func (b *broker) replaced(action admin.ProviderAction, old *revision) admin.ProviderChange {
	return admin.ProviderChange{Provider: old.Label(), Action: action, Draining: b.instances.Instances(old)}
}

// committed puts in force what is left to be. What was started and is not part of it is
// left to abandon.
func (t *transition) committed() error {
	if t.change.Empty() {
		t.adopt()
	} else {
		t.commit()
		t.applied = true
	}
	t.over = true
	t.started = slices.DeleteFunc(t.started, func(r *revision) bool { return slices.Contains(t.current, r) })
	t.api, t.metrics = nil, nil
	return nil
}
