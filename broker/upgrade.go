package broker

import (
	"context"
	"slices"
	"time"
)

const (
	// outdatedInterval is how often the broker looks whether a plugin's file is
	// another one now. A look costs one stat a provider.
	outdatedInterval = 2 * time.Second
	// healthyTimeout is how long a new revision may take to be well.
	healthyTimeout = time.Minute
	// drainGrace is the default of Options.DrainGrace, and drainLook how often it is looked
	// whether it is over.
	drainGrace = time.Minute
	drainLook  = 2 * time.Second
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
		for _, r := range b.catalog.generation().current {
			label := r.Label()
			file, outdated := r.Outdated()
			again := seen[label] == file
			seen[label] = file
			if !outdated || !again || tried[label] == file {
				continue
			}
			tried[label] = file
			b.logger.Info("the plugin's file has changed", "provider", label)
			if err := b.replace(ctx, label); err != nil && ctx.Err() == nil {
				b.logger.Error("the provider goes on with the plugin that it has", "provider", label, "error", err)
			}
		}
	}
}

// drain lets a revision serve its instances to their end and stops it then. There
// is no heir when the provider was removed.
func (b *broker) drain(old, heir *revision) {
	b.instances.Retire(old)
	defer b.catalog.remove(old)
	if n := b.instances.Instances(old); n > 0 {
		b.logger.Info("an earlier process of the provider serves its instances to their end", "provider", old.Label(), "instances", n, "removed", heir == nil)
	}
	if err := old.Retire(b.life); err != nil {
		b.logger.Warn("a plugin that another took over from", "error", err)
	}
	look := time.NewTicker(min(drainLook, b.options.DrainGrace))
	defer look.Stop()
	unusedSince := time.Now()
	for left := b.leftOn(old, heir); left != nil; left = b.leftOn(old, heir) {
		select {
		case <-b.instances.Retire(left):
			continue
		case <-look.C:
			if b.usedOn(old, heir) {
				unusedSince = time.Now()
			}
			if time.Since(unusedSince) < b.drainBound(old, heir) {
				continue
			}
			b.endUnused(old, heir)
		case <-old.Finished():
			b.inherit(old, heir)
		case <-b.life.Done():
			return // it is stopped with the others
		}
		break
	}
	if heir == nil {
		b.loseLine(old)
	}
	old.follow(heir)
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	old.Stop(stop)
	if err := b.state.RemoveAll([]string{old.dir}); err != nil {
		b.logger.Warn("the state directory of an earlier plugin could not be removed", "provider", old.Label(), "error", err)
	}
	b.logger.Info("the earlier process of the provider has ended", "provider", old.Label())
}

// drainBound is how long what nobody uses any more may keep a plugin that drains: its
// destruction fails, or it is not known whether a creation has left anything. What ends
// with the process need not be waited for, and what another process can see to neither.
// The rest is in a cloud, which was told when to end it.
func (b *broker) drainBound(old, heir *revision) time.Duration {
	if old.Description().Ephemeral || heir != nil {
		return b.options.DrainGrace
	}
	return b.catalog.generation().cfg.Limits.MaxLifetime + b.options.DrainGrace
}

// endUnused ends a plugin that drains although something is left on it.
func (b *broker) endUnused(old, heir *revision) {
	b.logger.Warn("a process of a provider that another took over from, or that was removed, is ended: it does not end what is left on it",
		"provider", old.Label(), "instances", b.instances.Instances(old))
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	old.Stop(stop)
	switch {
	case old.Description().Ephemeral:
		b.instances.EndWithProcess(old)
	case heir != nil:
		b.inherit(old, heir)
	}
}

// usedOn reports whether somebody may have something of what is left.
func (b *broker) usedOn(old, heir *revision) bool {
	return slices.ContainsFunc(b.lineServedBy(old, heir), func(r *revision) bool { return b.instances.InUse(r) > 0 })
}

// leftOn returns a revision with instances that the process of old has to serve yet:
// its own, and those left to it if there is nobody to leave them to. nil if there are
// none.
func (b *broker) leftOn(old, heir *revision) *revision {
	for _, r := range b.lineServedBy(old, heir) {
		if b.instances.Instances(r) > 0 {
			return r
		}
	}
	return nil
}

func (b *broker) lineServedBy(old, heir *revision) []*revision {
	if heir == nil {
		return b.catalog.line(old)
	}
	return []*revision{old}
}

// inherit gives what is left on a dead revision to the one after it, if there is
// one, which knows the instances if they live in a cloud. Those that nobody knows
// are lost.
func (b *broker) inherit(old, heir *revision) {
	if !b.bequeath(old, heir) {
		return
	}
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

// bequeath leaves the instances of a revision that has ended to its heir. Without one
// they are lost, and it reports false.
func (b *broker) bequeath(old, heir *revision) bool {
	b.instances.Retire(old)
	if b.catalog.bequeath(old, heir, func(r *revision) int { return b.instances.Instances(r) }) {
		return true
	}
	b.loseLine(old)
	return false
}

// loseLine gives up what is left on a revision, and what was left to it.
func (b *broker) loseLine(last *revision) {
	for _, r := range b.catalog.endLine(last) {
		b.instances.Lose(r)
	}
}
