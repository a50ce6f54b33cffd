package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// launched is a plugin that described itself, with the settings that it will
// get.
type launched struct {
	block    *config.Provider
	spec     pluginhost.Spec
	process  *pluginhost.Process
	settings sdk.Settings
	// stateDir is the process's own, abandoned are those of earlier ones.
	stateDir  string
	abandoned []string
}

// launchAll starts the plugins side by side, since only they know the schema of
// their settings, and checks the settings. Every mistake in any of them is
// reported, and then none is left running.
func (b *broker) launchAll(ctx context.Context, cfg *config.Config) ([]launched, error) {
	all := make([]launched, len(cfg.Providers))
	problems := make([]config.Diagnostics, len(all))
	var group sync.WaitGroup
	for i, block := range cfg.Providers {
		group.Go(func() { all[i], problems[i] = b.launch(ctx, cfg, block, b.state.FirstProviderDir) })
	}
	group.Wait()
	var diags config.Diagnostics
	for _, p := range problems {
		diags = diags.With(p)
	}
	if !diags.HasErrors() && ctx.Err() == nil {
		return all, nil
	}
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, l := range all {
		if l.process != nil {
			group.Go(func() { l.process.Stop(stop) })
		}
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, diags
}

// launch starts a plugin, checks its settings and makes its state directory. With
// errors the caller stops the process, if there is one.
func (b *broker) launch(ctx context.Context, cfg *config.Config, block *config.Provider, makeDir func(label string) (dir string, abandoned []string, err error)) (launched, config.Diagnostics) {
	process, err := b.launcher.Launch(ctx, specOf(cfg, block))
	if err != nil {
		// The diagnostic has everything but the plugin's last words.
		if failed, ok := errors.AsType[*pluginhost.LaunchError](err); ok && failed.Stderr != "" {
			b.logger.Error("a plugin did not start", "provider", block.Label, "stderr", failed.Stderr)
		}
		return launched{}, block.Diagnose(err, nil)
	}
	l := launched{block: block, spec: specOf(cfg, block), process: process}
	var diags config.Diagnostics
	l.settings, diags = validated(ctx, process, block)
	if diags.HasErrors() {
		return l, diags
	}
	if l.stateDir, l.abandoned, err = makeDir(block.Label); err != nil {
		return l, diags.With(block.Diagnose(err, nil))
	}
	return l, diags
}

// validateTimeout bounds how long a plugin may think about settings.
const validateTimeout = 10 * time.Second

// validated are the settings of a block, and what is wrong with them: by the schema,
// and if it has no objections by the plugin's own rules, which need no connection.
func validated(ctx context.Context, process *pluginhost.Process, block *config.Provider) (sdk.Settings, config.Diagnostics) {
	schema := process.Provider().Describe().Schema
	settings, diags := block.Settings(schema)
	if diags.HasErrors() {
		return settings, diags
	}
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	problems, err := process.Validate(ctx, settings)
	return settings, diags.With(block.Problems(problems, schema)).With(block.Diagnose(err, schema))
}

// supervise hands the started plugins over to supervision.
func (b *broker) supervise(started []launched) (revisions []*revision) {
	for _, l := range started {
		revisions = append(revisions, b.newRevision(l))
	}
	return revisions
}

// awaitProviders waits until each provider was tried. A setting that a plugin
// refuses is a mistake in the file, and the broker does not start with it; a
// back end that is down may come back, and supervision goes on.
func (b *broker) awaitProviders(ctx context.Context) error {
	var diags config.Diagnostics
	for _, r := range b.catalog.generation().current {
		err := r.Started(ctx)
		if sdk.CodeOf(err) == sdk.CodeInvalidConfig {
			diags = diags.With(r.block.Diagnose(err, r.Description().Schema))
		} else if err != nil && ctx.Err() == nil {
			b.logger.Error("a provider is not ready", "provider", r.Label(), "error", err)
		}
	}
	if diags.HasErrors() {
		return diags
	}
	return nil
}

func specOf(cfg *config.Config, block *config.Provider) pluginhost.Spec {
	return pluginhost.Spec{Label: block.Label, Dir: cfg.PluginDir, Plugin: block.Plugin, SHA256: block.SHA256, Env: block.Env, Secrets: block.Secrets()}
}

// Inspect starts the plugin of a provider block, asks what it is and what is wrong
// with the settings of the block, and stops it. The error says why it cannot be asked.
func Inspect(ctx context.Context, cfg *config.Config, block *config.Provider, options Options) (sdk.Description, config.Diagnostics, error) {
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		RuntimeDir: options.RuntimeDir,
		Logger:     options.Logger,
		Watchdog:   options.Watchdog, Adopt: options.Adopt,
	})
	if err != nil {
		return sdk.Description{}, nil, err
	}
	defer func() { _ = launcher.Close() }() // a directory left behind is swept at the next start
	process, err := launcher.Launch(ctx, specOf(cfg, block))
	if err != nil {
		return sdk.Description{}, nil, err
	}
	defer process.Stop(ctx)
	_, diags := validated(ctx, process, block)
	return process.Provider().Describe(), diags, nil
}
