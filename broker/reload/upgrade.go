package reload

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// outdatedInterval is how often the broker looks whether a plugin's file is
// another one now. A look costs one stat a provider.
const outdatedInterval = 2 * time.Second

// WatchExecutables upgrades providers whose plugin was replaced, until ctx ends.
func (r *Reloader) WatchExecutables(ctx context.Context) {
	look := time.NewTicker(outdatedInterval)
	defer look.Stop()
	// A file counts when it was the same twice: it may be in the middle of being
	// copied. One that did not do is not tried again.
	seen, tried := map[string]string{}, map[string]string{}
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		for _, p := range r.inForce().Current {
			label := p.Label()
			file, outdated := p.Outdated()
			again := seen[label] == file
			seen[label] = file
			if !outdated || !again || tried[label] == file {
				continue
			}
			tried[label] = file
			r.Logger.Info("the plugin's file has changed", "provider", label)
			if err := r.replace(ctx, label); err != nil && ctx.Err() == nil {
				r.Logger.Error("the provider goes on with the plugin that it has", "provider", label, "error", err)
			}
		}
	}
}

// replace starts another process of a provider beside the one it has, as a reload
// with the same configuration would. It is for a plugin whose file has changed.
func (r *Reloader) replace(ctx context.Context, label string) error {
	began := time.Now()
	t := &transition{Reloader: r}
	defer func() { t.rollback() }()
	if err := t.holdProviders(ctx); err != nil {
		return err
	}
	from := r.inForce()
	old := from.Revision(label)
	if old == nil {
		return nil // a reload has removed it meanwhile
	}
	t.to = from.Config
	if err := t.launch(ctx, []*config.Provider{old.Block()}); err != nil {
		return err
	}
	if err := t.configure(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	from = r.inForce()
	at := slices.Index(from.Current, old)
	if at < 0 {
		return nil // or given it other settings
	}
	fresh := t.started[0]
	t.from, t.to, t.current = from, from.Config, slices.Clone(from.Current)
	t.current[at] = fresh
	t.change.Providers = []admin.ProviderChange{r.replaced(admin.ProviderRestarts, old)}
	if err := r.Broker.Record(ctx, audited.OpReplacePlugin, t.change.String(), t.commit); err != nil {
		return err
	}
	if r.wanted == nil { // else the files say more than is in force
		r.texts.Keep(from.Number+1, from.Config)
	}
	r.history.Note(admin.Reload{
		At: time.Now(), Took: time.Since(began), Trigger: admin.TriggerPlugin,
		Generation: from.Number + 1, Applied: true, Revision: from.Config.Revision, Change: t.change,
	})
	r.Logger.Info("a new process of the provider has taken over", "provider", fresh.Label(), "version", fresh.Description().Version, "pid", fresh.State().PID)
	return nil
}
