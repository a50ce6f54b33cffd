package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/placement"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// placing says where new sessions go; nil where this broker is alone.
func (b *broker) placing() instance.Placer {
	if b.database == nil {
		return nil
	}
	b.placer = placement.NewPlacer(placement.Options{Peers: b.database, Own: b.ownLoad, Logger: b.logger.Named("placement")})
	return b.placer
}

// ownLoad is what this broker has for new sessions.
func (b *broker) ownLoad() placement.Own {
	own := placement.Own{Load: placement.Load{Draining: b.draining(), Weight: 1}}
	if p := b.catalog.InForce().Config.Peers; p != nil {
		own.Zone, own.Weight = p.Zone, p.Weight
	}
	own.Providers, own.Probed = b.catalog.Capacities()
	counts := b.instances.CountByProvider()
	for label, c := range own.Providers {
		for state, n := range counts[label] {
			if state != instance.StatePaused || !b.releasesPaused(label) {
				c.Used += n
			}
		}
		own.Providers[label] = c
	}
	return own
}

// releasesPaused reports whether the paused instances of a provider take no room.
func (b *broker) releasesPaused(label string) bool {
	r := b.catalog.InForce().Revision(label)
	return r != nil && slices.Contains(r.Description().Capabilities, sdk.CapabilityPauseReleases)
}

// publish has the peers hear what this broker has, from now on.
func (b *broker) publish() {
	if b.database != nil {
		b.database.Publish(b.placer.Load)
	}
}

// sayNow has the peers hear it at once.
func (b *broker) sayNow() {
	if b.database != nil {
		b.database.SayNow()
	}
}

// draining reports whether this broker leaves new sessions to others.
func (b *broker) draining() bool { return b.ending.Load() || b.Drained() }

// Drained reports whether the operator has taken this broker out.
func (b *broker) Drained() bool {
	if b.database != nil {
		return b.database.Draining()
	}
	return b.drained.Load()
}

// SetDrained takes this broker out, or back.
func (b *broker) SetDrained(ctx context.Context, drained bool) error {
	return b.Record(ctx, audited.OpDrain, fmt.Sprintf("draining = %t", drained), func() error {
		if b.database != nil {
			if err := b.database.SetDraining(ctx, drained); err != nil {
				return err
			}
		}
		b.drained.Store(drained)
		b.logger.Info("an administrator has it take new sessions, or leave them to others", "draining", drained)
		return nil
	})
}
