package broker

import (
	"context"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// reload brings a new configuration in force as a whole, or not at all: with an
// error, which is config.Diagnostics where the configuration is at fault,
// everything is as it was. Only one reload goes on at a time.
func (b *broker) reload(ctx context.Context, cfg *config.Config) (Change, error) {
	b.reloading.Lock()
	defer b.reloading.Unlock()
	t := &transition{broker: b, from: b.catalog.generation(), to: cfg}
	if err := t.prepare(ctx); err != nil {
		t.abandon()
		return t.change, err
	}
	if t.change.Empty() {
		return t.change, nil
	}
	t.commit()
	return t.change, nil
}

// replace starts another process of a provider beside the one it has, as a reload
// with the same configuration would. It is for a plugin whose file has changed.
func (b *broker) replace(ctx context.Context, label string) error {
	b.reloading.Lock()
	defer b.reloading.Unlock()
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
	t.commit()
	b.logger.Info("a new process of the provider has taken over", "provider", r.Label(), "version", r.Description().Version, "pid", r.State().PID)
	return nil
}
