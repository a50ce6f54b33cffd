package reload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/broker/launch"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// transition is one reload: what was begun for the next generation, and what has
// to be undone if it does not come to that.
type transition struct {
	*Reloader
	from   *generation.Generation
	to     *config.Config
	change admin.Change
	// revision of the files that this is about.
	revision string

	launched  []launch.Started
	started   []*generation.Revision
	current   []*generation.Revision // of the next generation, complete if plan misses none
	listeners Listeners
	holding   bool // Reloader.providing
	// over says that it is in force, applied that it made a generation, beside that the
	// files want providers too that are not in force.
	over, applied, beside bool
}

// plan finds out what changes between a generation and a configuration, and which
// providers are to be started for it that are not. It may be called again.
func (t *transition) plan(from *generation.Generation, to *config.Config) (missing []*config.Provider) {
	t.from, t.to, t.change, t.current = from, to, compare(from.Config, to), nil
	for _, block := range to.Providers {
		old := from.Revision(block.Label)
		if old != nil && old.Serves(to, block) {
			t.current = append(t.current, old)
			continue
		}
		action := admin.ProviderChange{Provider: block.Label, Action: admin.ProviderStarts}
		if old != nil {
			action = t.replaced(admin.ProviderRestarts, old)
		}
		t.change.Providers = append(t.change.Providers, action)
		if i := slices.IndexFunc(t.started, func(r *generation.Revision) bool { return r.Label() == block.Label && r.Serves(to, block) }); i >= 0 {
			t.current = append(t.current, t.started[i])
		} else {
			missing = append(missing, block)
		}
	}
	for _, old := range from.Current {
		if to.Provider(old.Label()) == nil {
			t.change.Providers = append(t.change.Providers, t.replaced(admin.ProviderStops, old))
		}
	}
	return missing
}

// replaced is what happens to a revision that is there.
func (r *Reloader) replaced(action admin.ProviderAction, old *generation.Revision) admin.ProviderChange {
	return admin.ProviderChange{Provider: old.Label(), Action: action, Draining: r.Host.Instances.Instances(old)}
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

// holdProviders waits until nobody else starts providers; rollback ends that.
func (t *transition) holdProviders(ctx context.Context) error {
	if t.holding {
		return nil
	}
	select {
	case t.providing <- struct{}{}:
		t.holding = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// launch starts a plugin for each of these providers.
func (t *transition) launch(ctx context.Context, blocks []*config.Provider) (err error) {
	t.launched, err = t.Host.Starter.Start(ctx, t.to, blocks, t.Host.Starter.Dirs.NextProviderDir)
	return err
}

// configure hands what was launched over to supervision, and waits until it is well.
func (t *transition) configure(ctx context.Context) error {
	fresh := t.Host.Supervise(t.launched)
	t.launched = nil // they belong to their revisions
	t.started = append(t.started, fresh...)
	return generation.AwaitHealthy(ctx, fresh)
}

func (t *transition) outcome() outcome {
	return outcome{cfg: t.to, revision: t.revision, change: t.change, applied: t.applied, beside: t.beside, generation: t.inForce().Number}
}

// listen opens the addresses that are new.
func (t *transition) listen() (err error) {
	if t.from.Config.Listen != t.to.Listen {
		if t.listeners.API, err = t.listenOn(t.to.Listen); err != nil {
			return err
		}
	}
	t.listeners.FrontDoors = map[string]net.Listener{}
	for _, door := range t.to.FrontDoors {
		if door.Listen == "" || door.Listen == t.from.Config.FrontDoor(door.Kind).Listen {
			continue
		}
		if t.listeners.FrontDoors[door.Kind], err = t.listenOn(door.Listen); err != nil {
			return err
		}
	}
	if address := t.to.PeersListen(); address != "" && address != t.from.Config.PeersListen() {
		if t.listeners.Peers, err = t.listenOn(address); err != nil {
			return err
		}
	}
	if t.from.Config.Metrics.Listen != t.to.Metrics.Listen && t.to.Metrics.Listen != "" {
		t.listeners.Metrics, err = t.listenOn(t.to.Metrics.Listen)
	}
	return err
}

// listenOn opens an address. One that the broker itself has is not free before the change
// that gives it up is in force.
func (t *transition) listenOn(address string) (net.Listener, error) {
	listener, err := t.Listen(address)
	if errors.Is(err, unix.EADDRINUSE) {
		own := []string{t.from.Config.Listen, t.from.Config.Metrics.Listen, t.from.Config.PeersListen()}
		for _, door := range t.from.Config.FrontDoors {
			own = append(own, door.Listen)
		}
		if slices.Contains(own, address) {
			return nil, fmt.Errorf("the broker itself listens on %s for something else; give the address up in one change, and take it for another use in the next", address)
		}
	}
	return listener, err
}

// commit puts in force what is left to be. What was started and is not part of it is
// left to rollback.
func (t *transition) commit() error {
	if t.change.Empty() {
		// Comments, and how a value is written, show; so does the revision.
		t.Host.Catalog.Set(t.from.Reworded(t.to, t.current))
	} else {
		t.Broker.Apply(t.from, generation.New(t.to, t.current, t.from), t.listeners)
		t.applied = true
	}
	t.over = true
	t.started = slices.DeleteFunc(t.started, func(r *generation.Revision) bool { return slices.Contains(t.current, r) })
	t.listeners = Listeners{}
	return nil
}

// rollback undoes what was begun and is not in force.
func (t *transition) rollback() {
	if t.holding {
		defer func() { <-t.providing }()
	}
	var group sync.WaitGroup
	group.Go(func() { t.Host.Starter.Discard(t.launched) })
	group.Go(func() { t.Host.Discard(t.started) })
	group.Wait()
	t.listeners.close()
}
