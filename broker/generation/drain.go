package generation

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/launch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// drainLook is how often it is looked whether Host.Grace is over.
	drainLook = 2 * time.Second
	// takeOverTimeout bounds what follows the death of a draining plugin.
	takeOverTimeout = time.Minute
)

// Instances are those on the providers; instance.Service has them.
type Instances interface {
	// Instances is how many there are on a provider, InUse how many of them somebody
	// may use.
	Instances(p instance.Provider) int
	InUse(p instance.Provider) int
	// Retire gives a provider no new ones. empty is closed when it has none left.
	Retire(p instance.Provider) (empty <-chan struct{})
	// Reconcile compares those of owner with what a provider lists.
	Reconcile(ctx context.Context, owner instance.Provider, provider sdk.Provider) error
	// EndWithProcess forgets those that ended with their process, Lose those that nobody
	// can reach.
	EndWithProcess(p instance.Provider)
	Lose(p instance.Provider)
}

// Host supervises the revisions of a catalog.
type Host struct {
	Catalog   *Catalog
	Instances Instances
	Starter   *launch.Starter
	Audit     audited.Log
	Logger    hclog.Logger
	// Life ends when all plugins are stopped, and Tasks are waited for after that.
	Life  context.Context
	Tasks *background.Group
	// Grace is how long a plugin that drains may go on to end what nobody uses any more.
	Grace time.Duration
}

// Discard ends revisions that did not come in force, side by side. What they have found
// of an earlier process of the broker is left to those that are.
func (h *Host) Discard(revisions []*Revision) {
	ctx, cancel := context.WithTimeout(context.Background(), launch.StopTimeout)
	defer cancel()
	var group sync.WaitGroup
	var dirs []string
	for _, r := range revisions {
		group.Go(func() {
			r.Stop(ctx)
			if h.Instances.Instances(r) > 0 {
				h.handOver(r, h.Catalog.InForce().Revision(r.Label()))
			}
		})
		dirs = append(dirs, r.started.StateDir)
	}
	group.Wait()
	if err := h.Starter.Dirs.RemoveAll(dirs); err != nil {
		h.Logger.Warn("state directories of plugins that were tried could not be removed", "error", err)
	}
}

// Drain lets a revision serve its instances to their end and stops it then. There
// is no successor when the provider was removed.
func (h *Host) Drain(old, successor *Revision) {
	h.Instances.Retire(old)
	defer h.Catalog.remove(old)
	if n := h.Instances.Instances(old); n > 0 {
		h.Logger.Info("an earlier process of the provider serves its instances to their end", "provider", old.Label(), "instances", n, "removed", successor == nil)
	}
	if err := old.Retire(h.Life); err != nil {
		h.Logger.Warn("a plugin that another took over from", "error", err)
	}
	look := time.NewTicker(min(drainLook, h.Grace))
	defer look.Stop()
	unusedSince := time.Now()
	for left := h.remaining(old, successor); left != nil; left = h.remaining(old, successor) {
		select {
		case <-h.Instances.Retire(left):
			continue
		case <-look.C:
			if h.inUse(old, successor) {
				unusedSince = time.Now()
			}
			if time.Since(unusedSince) < h.drainBound(old, successor) {
				continue
			}
			h.endUnused(old, successor)
		case <-old.Finished():
			h.takeOver(old, successor)
		case <-h.Life.Done():
			return // it is stopped with the others
		}
		break
	}
	if successor == nil {
		h.lose(old)
	}
	old.follow(successor)
	stop, cancel := context.WithTimeout(context.Background(), launch.StopTimeout)
	defer cancel()
	old.Stop(stop)
	if err := h.Starter.Dirs.RemoveAll([]string{old.started.StateDir}); err != nil {
		h.Logger.Warn("the state directory of an earlier plugin could not be removed", "provider", old.Label(), "error", err)
	}
	h.Logger.Info("the earlier process of the provider has ended", "provider", old.Label())
}

// drainBound is how long what nobody uses any more may keep a plugin that drains: its
// destruction fails, or it is not known whether a creation has left anything. What ends
// with the process need not be waited for, and what another process can see to neither.
// The rest is in a cloud, which was told when to end it.
func (h *Host) drainBound(old, successor *Revision) time.Duration {
	if old.Description().Ephemeral || successor != nil {
		return h.Grace
	}
	return h.Catalog.InForce().Config.Limits.MaxLifetime + h.Grace
}

// endUnused ends a plugin that drains although something is left on it.
func (h *Host) endUnused(old, successor *Revision) {
	h.Logger.Warn("a process of a provider that another took over from, or that was removed, is ended: it does not end what is left on it",
		"provider", old.Label(), "instances", h.Instances.Instances(old))
	stop, cancel := context.WithTimeout(context.Background(), launch.StopTimeout)
	defer cancel()
	old.Stop(stop)
	switch {
	case old.Description().Ephemeral:
		h.Instances.EndWithProcess(old)
	case successor != nil:
		h.takeOver(old, successor)
	}
}

// inUse reports whether somebody may have something of what is left.
func (h *Host) inUse(old, successor *Revision) bool {
	return slices.ContainsFunc(h.servedBy(old, successor), func(r *Revision) bool { return h.Instances.InUse(r) > 0 })
}

// remaining returns a revision with instances that the process of old has to serve yet:
// its own, and those left to it if there is nobody to leave them to. nil if there are
// none.
func (h *Host) remaining(old, successor *Revision) *Revision {
	for _, r := range h.servedBy(old, successor) {
		if h.Instances.Instances(r) > 0 {
			return r
		}
	}
	return nil
}

func (h *Host) servedBy(old, successor *Revision) []*Revision {
	if successor == nil {
		return h.Catalog.chain(old)
	}
	return []*Revision{old}
}

// takeOver gives what is left on a dead revision to the one after it, if there is
// one, which knows the instances if they live in a cloud. Those that nobody knows
// are lost.
func (h *Host) takeOver(old, successor *Revision) {
	if !h.handOver(old, successor) {
		return
	}
	ctx, cancel := context.WithTimeout(h.Life, takeOverTimeout)
	defer cancel()
	provider, err := successor.Provider(ctx)
	if err == nil {
		err = h.Instances.Reconcile(ctx, old, provider)
	}
	if err != nil {
		h.Logger.Warn("instances of a plugin that died could not be compared with the next one's", "provider", old.Label(), "error", err)
	}
}

// handOver leaves the instances of a revision that has ended to its successor. Without one
// they are lost, and it reports false.
func (h *Host) handOver(old, successor *Revision) bool {
	h.Instances.Retire(old)
	if h.Catalog.handOver(old, successor, func(r *Revision) int { return h.Instances.Instances(r) }) {
		return true
	}
	h.lose(old)
	return false
}

// lose gives up what is left on a revision, and what was left to it.
func (h *Host) lose(last *Revision) {
	for _, r := range h.Catalog.endChain(last) {
		h.Instances.Lose(r)
	}
}
