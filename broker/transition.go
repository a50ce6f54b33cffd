package broker

import (
	"context"
	"net"
	"reflect"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/listen"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// transition is one reload: what was begun for the next generation, and what has
// to be undone if it does not come to that.
type transition struct {
	broker *broker
	from   *generation
	to     *config.Config
	change admin.Change
	// revision of the files that this is about.
	revision string

	launched []launched
	started  []*revision
	current  []*revision // of the next generation, complete if aim misses none
	// listeners are those of a new address, nil where the address stays.
	api, metrics net.Listener
	holding      bool // broker.providing
	// over says that it is in force, applied that it made a generation, beside that the
	// files want providers too that are not in force.
	over, applied, beside bool
}

// aim finds out what changes between a generation and a configuration, and which
// providers are to be started for it that are not. It may be called again.
func (t *transition) aim(from *generation, to *config.Config) (missing []*config.Provider) {
	t.from, t.to, t.change, t.current = from, to, compare(from.cfg, to), nil
	for _, block := range to.Providers {
		spec, old := specOf(to, block), from.revision(block.Label)
		if old != nil && old.serves(spec, block) {
			t.current = append(t.current, old)
			continue
		}
		action := admin.ProviderChange{Provider: block.Label, Action: admin.ProviderStarts}
		if old != nil {
			action = t.broker.replaced(admin.ProviderRestarts, old)
		}
		t.change.Providers = append(t.change.Providers, action)
		if i := slices.IndexFunc(t.started, func(r *revision) bool { return r.Label() == block.Label && r.serves(spec, block) }); i >= 0 {
			t.current = append(t.current, t.started[i])
		} else {
			missing = append(missing, block)
		}
	}
	for _, old := range from.current {
		if to.Provider(old.Label()) == nil {
			t.change.Providers = append(t.change.Providers, t.broker.replaced(admin.ProviderStops, old))
		}
	}
	return missing
}

// start starts providers and waits until they are well.
func (t *transition) start(ctx context.Context, missing []*config.Provider) error {
	if err := t.holdProviders(ctx); err != nil {
		return err
	}
	if err := t.launch(ctx, missing); err != nil {
		return err
	}
	return t.configure(ctx)
}

// holdProviders waits until nobody else starts providers; abandon ends that.
func (t *transition) holdProviders(ctx context.Context) error {
	if t.holding {
		return nil
	}
	select {
	case t.broker.providing <- struct{}{}:
		t.holding = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// launch starts a plugin for each of these providers, side by side. Every mistake in
// any of them is reported.
func (t *transition) launch(ctx context.Context, fresh []*config.Provider) error {
	all, problems := make([]launched, len(fresh)), make([]config.Diagnostics, len(fresh))
	var group sync.WaitGroup
	for i, block := range fresh {
		group.Go(func() { all[i], problems[i] = t.broker.launch(ctx, t.to, block, t.broker.state.NextProviderDir) })
	}
	group.Wait()
	t.launched = all
	var diags config.Diagnostics
	for _, p := range problems {
		diags = diags.With(p)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if diags.HasErrors() {
		return diags
	}
	return nil
}

// configure hands what was launched over to supervision, and waits until it is well.
func (t *transition) configure(ctx context.Context) error {
	var fresh []*revision
	for _, l := range t.launched {
		fresh = append(fresh, t.broker.newRevision(l))
	}
	t.launched = nil // they belong to their revisions
	t.started = append(t.started, fresh...)
	return awaitHealthy(ctx, fresh)
}

func (t *transition) outcome() outcome {
	return outcome{cfg: t.to, revision: t.revision, change: t.change, applied: t.applied, beside: t.beside, generation: t.broker.catalog.generation().number}
}

// listen opens the addresses that are new.
func (t *transition) listen() (err error) {
	if t.from.cfg.Listen != t.to.Listen {
		if t.api, err = listen.On(t.to.Listen); err != nil {
			return err
		}
	}
	if t.from.cfg.Metrics.Listen != t.to.Metrics.Listen && t.to.Metrics.Listen != "" {
		t.metrics, err = listen.On(t.to.Metrics.Listen)
	}
	return err
}

// awaitHealthy waits until every provider that was started is well. One that was
// down before the reload is not asked.
func awaitHealthy(ctx context.Context, started []*revision) error {
	bounded, cancel := context.WithTimeout(ctx, healthyTimeout)
	defer cancel()
	problems := make([]error, len(started))
	var group sync.WaitGroup
	for i, r := range started {
		group.Go(func() { problems[i] = r.AwaitHealthy(bounded) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var diags config.Diagnostics
	for i, err := range problems {
		diags = diags.With(started[i].block.Diagnose(err, started[i].Description().Schema))
	}
	if diags.HasErrors() {
		return diags
	}
	return nil
}

// abandon undoes what was begun and is not in force.
func (t *transition) abandon() {
	if t.holding {
		defer func() { <-t.broker.providing }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var group sync.WaitGroup
	var dirs []string
	for _, l := range t.launched {
		if l.process != nil {
			group.Go(func() { l.process.Stop(ctx) })
		}
		if l.stateDir != "" {
			dirs = append(dirs, l.stateDir)
		}
	}
	for _, r := range t.started {
		group.Go(func() {
			r.Stop(ctx)
			if t.broker.instances.Instances(r) > 0 { // it has found what an earlier process of the broker left
				t.broker.bequeath(r, t.broker.catalog.generation().revision(r.Label()))
			}
		})
		dirs = append(dirs, r.dir)
	}
	group.Wait()
	if err := t.broker.state.RemoveAll(dirs); err != nil {
		t.broker.logger.Warn("state directories of plugins that were tried could not be removed", "error", err)
	}
	for _, l := range []net.Listener{t.api, t.metrics} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// adopt takes over a configuration that says the same in other words: comments and
// how a value is written show, and so does its revision.
func (t *transition) adopt() {
	same := newGeneration(t.from.number, t.to, t.current, t.from)
	same.accepted = t.from.accepted
	t.broker.catalog.set(same)
}

// commit does what cannot go wrong.
func (t *transition) commit() {
	b, next := t.broker, newGeneration(t.from.number+1, t.to, t.current, t.from)
	b.forgetAnswers(func(name string) bool { return next.has(name) && t.from.has(name) })
	replaced := b.catalog.set(next)
	b.instances.ReleaseTenants(next.has)
	b.quotas.Forget(next.has)
	b.quotas.SetRules(next.quotaRules())
	b.instances.SetLimits(instanceLimits(t.to.Limits))
	b.instances.InForce()
	b.gate.SetBounds(listen.Bounds(t.to.Connections))
	b.server.SetBounds(requestBounds(t.to))
	b.server.SetPreviewHosts(previewHosts(t.to.Previews))
	b.server.SetTLS(serverTLS(t.to.TLS))
	b.setAudit(t.to)
	b.store.SetPatience(t.to.Limits.DiskTimeout)
	b.logger.SetLevel(hclog.LevelFromString(t.to.Log.Level))
	if t.api != nil {
		b.api.MoveTo(t.api)
		b.logger.Info("the API has moved", "address", t.api.Addr().String())
	}
	if t.from.cfg.Metrics.Listen != t.to.Metrics.Listen {
		b.showMetrics(t.metrics)
	}
	for _, old := range replaced {
		heir := next.revision(old.Label())
		b.tasks.Go("drain "+old.Label(), func() { b.drain(old, heir) })
	}
}

// serves reports whether the revision is what a block asks for. A file that was
// replaced is another matter.
func (r *revision) serves(spec pluginhost.Spec, block *config.Provider) bool {
	if !reflect.DeepEqual(spec, r.spec) {
		return false
	}
	settings, diags := block.Settings(r.Description().Schema)
	return !diags.HasErrors() && reflect.DeepEqual(settings, r.settings)
}
