package broker

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/broker/agreement"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/reload"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// takeShared takes over the configuration that other brokers on the database have in the file
// which they share. It returns the configuration with that, and its number; 0 where this broker
// is the first, or shares nothing.
func (b *broker) takeShared(ctx context.Context, cfg *config.Config) (*config.Config, int64, error) {
	path, text := cfg.Shared()
	if b.database == nil {
		return cfg, 0, nil
	}
	if path == "" {
		return cfg, 0, b.database.Left(ctx)
	}
	current, _, err := b.database.Look(ctx)
	if err != nil || current.Number == 0 || bytes.Equal(current.Text, text) {
		return cfg, current.Number, err
	}
	taken, diags := config.Load(cfg.Files()[0].Name, config.WithContent(path, current.Text))
	if diags.HasErrors() {
		b.logger.Error("the configuration that the other brokers share does not work on this one", "file", path, "shared_generation", current.Number)
		return nil, 0, diags
	}
	if err := reload.WriteShared(path, current.Text, nil); err != nil {
		b.logger.Warn("the file that the brokers share is not what is in force: it cannot be written", "file", path, "error", err)
	} else {
		b.logger.Warn("the file that the brokers share said something else, and is kept beside", "file", path, "shared_generation", current.Number)
	}
	return taken, current.Number, nil
}

// share has the brokers share what is in force here, with that number.
func (b *broker) share(ctx context.Context, g *generation.Generation, number int64) error {
	path, text := g.Config.Shared()
	if path == "" {
		return nil
	}
	if number == 0 {
		var diags config.Diagnostics
		for _, r := range g.Current {
			diags = diags.With(g.Config.OpenSecrets(r.Block(), r.Description().Schema))
		}
		if diags.HasErrors() {
			return diags
		}
		first, err := b.database.First(ctx, text)
		if err != nil {
			return fmt.Errorf("share the configuration: %w", err)
		}
		if bytes.Equal(first.Text, text) { // else another broker was first, and it is adopted in a moment
			number = first.Number
		}
	}
	if err := b.database.Joined(ctx, number); err != nil {
		return fmt.Errorf("share the configuration: %w", err)
	}
	b.sharing = agreement.NewGroup(number, agreement.Options{Store: b.database, Logger: b.logger.Named("config")})
	b.reloader.Sharing = b.sharing
	return nil
}

// configurationMetrics are what the metrics say of the configuration.
func (b *broker) configurationMetrics() metrics.Configuration {
	c := b.reloader.Metrics()
	if b.sharing != nil {
		c.Shared, c.SharedNewest = b.sharing.Numbers()
	}
	return c
}
