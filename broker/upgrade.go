package broker

import (
	"context"
	"time"
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
	if err := old.Retire(b.life); err != nil {
		b.logger.Warn("a plugin that another took over from", "error", err)
	}
	for left := b.leftOn(old, heir); left != nil; left = b.leftOn(old, heir) {
		select {
		case <-b.instances.Retire(left):
			continue
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
	if err := removeAll([]string{old.dir}); err != nil {
		b.logger.Warn("the state directory of an earlier plugin could not be removed", "provider", old.Label(), "error", err)
	}
	b.logger.Info("the earlier process of the provider has ended", "provider", old.Label())
}

// leftOn returns a revision with instances that the process of old has to serve yet:
// its own, and those left to it if there is nobody to leave them to. nil if there are
// none.
func (b *broker) leftOn(old, heir *revision) *revision {
	line := []*revision{old}
	if heir == nil {
		line = b.catalog.line(old)
	}
	for _, r := range line {
		if b.instances.Instances(r) > 0 {
			return r
		}
	}
	return nil
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
