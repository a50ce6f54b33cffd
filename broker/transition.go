package broker

import (
	"context"
	"net"
	"reflect"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
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

	launched []launched
	started  []*revision
	current  []*revision // of the next generation, complete after prepare
	// listeners are those of a new address, nil where the address stays.
	api, metrics net.Listener
}

// prepare does all that can go wrong.
func (t *transition) prepare(ctx context.Context) error {
	if diags := needsRestart(t.from.cfg, t.to); diags.HasErrors() {
		return diags
	}
	if err := t.launch(ctx); err != nil {
		return err
	}
	if err := t.listen(); err != nil {
		return err
	}
	for _, l := range t.launched {
		t.started = append(t.started, t.broker.newRevision(l))
	}
	t.launched = nil // they belong to their revisions
	if err := t.awaitHealthy(ctx); err != nil {
		return err
	}
	for _, block := range t.to.Providers {
		r := t.from.revision(block.Label)
		if i := slices.IndexFunc(t.started, func(r *revision) bool { return r.Label() == block.Label }); i >= 0 {
			r = t.started[i]
		}
		t.current = append(t.current, r)
	}
	return nil
}

// launch finds out what changes, and starts a plugin for each provider that is new
// or other than before, side by side. Every mistake in any of them is reported.
func (t *transition) launch(ctx context.Context) error {
	t.change = compare(t.from.cfg, t.to)
	var fresh []*config.Provider
	for _, block := range t.to.Providers {
		switch old := t.from.revision(block.Label); {
		case old == nil:
			t.change.Providers = append(t.change.Providers, admin.ProviderChange{Provider: block.Label, Action: admin.ProviderStarts})
			fresh = append(fresh, block)
		case !old.serves(specOf(t.to, block), block):
			t.change.Providers = append(t.change.Providers, t.broker.replaced(admin.ProviderRestarts, old))
			fresh = append(fresh, block)
		}
	}
	for _, old := range t.from.current {
		if t.to.Provider(old.Label()) == nil {
			t.change.Providers = append(t.change.Providers, t.broker.replaced(admin.ProviderStops, old))
		}
	}
	all, problems := make([]launched, len(fresh)), make([]config.Diagnostics, len(fresh))
	var group sync.WaitGroup
	for i, block := range fresh {
		group.Go(func() { all[i], problems[i] = t.broker.launch(ctx, t.to, block, t.broker.state.nextProviderDir) })
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

// listen opens the addresses that are new.
func (t *transition) listen() (err error) {
	if t.from.cfg.Listen != t.to.Listen {
		if t.api, err = listen(t.to.Listen); err != nil {
			return err
		}
	}
	if t.from.cfg.Metrics.Listen != t.to.Metrics.Listen && t.to.Metrics.Listen != "" {
		t.metrics, err = listen(t.to.Metrics.Listen)
	}
	return err
}

// awaitHealthy waits until every provider that was started is well. One that was
// down before the reload is not asked.
func (t *transition) awaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthyTimeout)
	defer cancel()
	problems := make([]error, len(t.started))
	var group sync.WaitGroup
	for i, r := range t.started {
		group.Go(func() { problems[i] = r.AwaitHealthy(ctx) })
	}
	group.Wait()
	var diags config.Diagnostics
	for i, err := range problems {
		diags = diags.With(t.started[i].block.Diagnose(err, t.started[i].Description().Schema))
	}
	if diags.HasErrors() {
		return diags
	}
	return nil
}

// abandon undoes what was begun.
func (t *transition) abandon() {
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
				t.broker.bequeath(r, t.from.revision(r.Label()))
			}
		})
		dirs = append(dirs, r.dir)
	}
	group.Wait()
	if err := removeAll(dirs); err != nil {
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
	same := newGeneration(t.from.number, t.to, t.current)
	same.accepted = t.from.accepted
	t.broker.catalog.set(same)
}

// commit does what cannot go wrong.
func (t *transition) commit() {
	b, next := t.broker, newGeneration(t.from.number+1, t.to, t.current)
	replaced := b.catalog.set(next)
	b.quotas.SetRules(next.quotaRules())
	b.instances.SetLimits(instanceLimits(t.to.Limits))
	b.server.SetBounds(requestBounds(t.to.Limits))
	b.server.SetTLS(serverTLS(t.to.TLS))
	b.setAudit(t.to.Audit)
	b.logger.SetLevel(hclog.LevelFromString(t.to.Log.Level))
	if t.api != nil {
		b.api.moveTo(t.api)
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
