package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// saveError is a configuration that would work and could not be written.
type saveError struct{ err error }

func (e *saveError) Error() string { return e.err.Error() }

func (e *saveError) Unwrap() error { return e.err }

// reload brings a new configuration in force as a whole, or not at all: with an
// error, which is config.Diagnostics where the configuration is at fault,
// everything is as it was. Only one reload goes on at a time. save, unless nil,
// writes the configuration when it is known to work, and before it is in force.
func (b *broker) reload(ctx context.Context, cfg *config.Config, save func() error) (admin.Change, error) {
	b.reloading.Lock()
	defer b.reloading.Unlock()
	t := &transition{broker: b, from: b.catalog.generation(), to: cfg}
	if err := t.prepare(ctx); err != nil {
		t.abandon()
		return t.change, err
	}
	if save == nil && t.change.Empty() {
		t.adopt()
		return t.change, nil
	}
	err := b.recorded(ctx, audited.OpReload, cmp.Or(t.change.String(), "what the files say, to the same effect"), func() error {
		if save != nil {
			if err := save(); err != nil {
				return &saveError{err}
			}
		}
		return t.committed()
	})
	if err != nil {
		t.abandon()
		return t.change, err
	}
	return t.change, nil
}

// dryRun says what a reload would change. Plugins that would be started are, to
// check their settings, but they are not configured.
func (b *broker) dryRun(ctx context.Context, cfg *config.Config) (admin.Change, error) {
	b.reloading.Lock()
	defer b.reloading.Unlock()
	t := &transition{broker: b, from: b.catalog.generation(), to: cfg}
	defer t.abandon()
	err := t.launch(ctx)
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
	b.reloading.Lock()
	defer b.reloading.Unlock()
	began := time.Now()
	from := b.catalog.generation()
	old := from.revision(label)
	if old == nil {
		return nil // a reload has removed it meanwhile
	}
	t := &transition{broker: b, from: from, to: from.cfg}
	l, diags := b.launch(ctx, from.cfg, old.block, b.state.nextProviderDir)
	t.launched = []launched{l}
	if diags.HasErrors() {
		t.abandon()
		return diags
	}
	r := b.newRevision(l)
	t.launched, t.started = nil, []*revision{r}
	if err := t.awaitHealthy(ctx); err != nil {
		t.abandon()
		return err
	}
	t.current = slices.Clone(from.current)
	t.current[slices.Index(t.current, old)] = r
	t.change.Providers = []admin.ProviderChange{b.replaced(admin.ProviderRestarts, old)}
	if err := b.recorded(ctx, audited.OpReplacePlugin, t.change.String(), t.committed); err != nil {
		t.abandon()
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

// committed puts in force what is left to be.
func (t *transition) committed() error {
	if t.change.Empty() {
		t.adopt()
	} else {
		t.commit()
	}
	return nil
}
