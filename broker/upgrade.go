package broker

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
)

const (
	// outdatedInterval is how often the broker looks whether a plugin's file is
	// another one now. A look costs one stat a provider.
	outdatedInterval = 2 * time.Second
	// healthyTimeout is how long a new revision may take to be well.
	healthyTimeout = time.Minute
	// inheritTimeout bounds what follows the death of a draining plugin.
	inheritTimeout = time.Minute
)

// watchExecutables upgrades providers whose plugin was replaced, until ctx ends.
func (b *broker) watchExecutables(ctx context.Context) {
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
		for _, r := range b.catalog.revisions() {
			label := r.Label()
			file, outdated := r.Outdated()
			again := seen[label] == file
			seen[label] = file
			if !outdated || !again || tried[label] == file {
				continue
			}
			tried[label] = file
			b.logger.Info("the plugin's file has changed", "provider", label)
			if err := b.replace(ctx, r, r.block); err != nil && ctx.Err() == nil {
				b.logger.Error("the provider goes on with the plugin that it has", "provider", label, "error", err)
			}
		}
	}
}

// replace starts a new revision of a provider beside the old, and when it is well
// moves new work over. Otherwise everything stays as it was.
func (b *broker) replace(ctx context.Context, old *revision, block *config.Provider) error {
	l, diags := b.launch(ctx, block, b.state.nextProviderDir)
	if diags.HasErrors() {
		if l.process != nil {
			b.stopProcess(l.process)
		}
		return discard(l, diags)
	}
	r := b.newRevision(l)
	healthy, cancel := context.WithTimeout(ctx, healthyTimeout)
	defer cancel()
	if err := r.AwaitHealthy(healthy); err != nil {
		stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		r.Stop(stop)
		return discard(l, err)
	}
	b.catalog.replace(old, r)
	b.logger.Info("a new process of the provider has taken over", "provider", r.Label(), "version", r.Description().Version, "pid", r.State().PID)
	b.tasks.Go("drain "+old.Label(), func() { b.drain(old, r) })
	return nil
}

// drain lets a revision serve its instances to their end and stops it then.
func (b *broker) drain(old, heir *revision) {
	empty := b.instances.Retire(old)
	defer b.catalog.remove(old)
	if err := old.Retire(b.life); err != nil {
		b.logger.Warn("a plugin that another took over from", "error", err)
	}
	select {
	case <-empty:
	case <-old.Finished():
		b.inherit(old, heir)
	case <-b.life.Done():
		return // it is stopped with the others
	}
	old.follow(heir)
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	old.Stop(stop)
	if err := removeAll([]string{old.dir}); err != nil {
		b.logger.Warn("the state directory of an earlier plugin could not be removed", "provider", old.Label(), "error", err)
	}
	b.logger.Info("the earlier process of the provider has ended", "provider", old.Label())
}

// inherit gives what is left on a dead revision to the one after it, which knows
// the instances if they live in a cloud. Those that it does not know are lost.
func (b *broker) inherit(old, heir *revision) {
	old.follow(heir)
	ctx, cancel := context.WithTimeout(b.life, inheritTimeout)
	defer cancel()
	provider, err := heir.Provider(ctx)
	if err == nil {
		err = b.instances.Reconcile(ctx, old, provider)
	}
	if err != nil {
		b.logger.Warn("instances of a plugin that died could not be compared with the next one's", "provider", old.Label(), "error", err)
	}
}

func discard(l launched, err error) error {
	if l.stateDir != "" {
		_ = removeAll([]string{l.stateDir}) // what is left is swept at the next start
	}
	return err
}

func (b *broker) stopProcess(p *pluginhost.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	p.Stop(ctx)
}
