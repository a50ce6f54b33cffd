// Package launch starts plugins for the provider blocks of a configuration: to serve, to
// be described, to be tried, or to be found before there is a block for them.
//
// A process that Start returns belongs to the caller, who hands it over to supervision
// (package generation) or stops it. All others end before the call returns.
package launch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// StopTimeout bounds the stop of plugins.
const StopTimeout = 10 * time.Second

// validateTimeout bounds how long a plugin may think about settings.
const validateTimeout = 10 * time.Second

// Dirs are the state directories of providers' processes; statedir.Dir has them.
type Dirs interface {
	// ID of the broker.
	ID() string
	// NextProviderDir makes a directory for one more process of a provider.
	NextProviderDir(label string) (dir string, abandoned []string, err error)
	// KeepDir makes the directory that all processes of a provider have together.
	KeepDir(label string) (dir string, err error)
	RemoveAll(dirs []string) error
}

// MakeDir makes the state directory of a process. abandoned are those of earlier ones,
// which nobody uses.
type MakeDir func(label string) (dir string, abandoned []string, err error)

// Starter starts plugins.
type Starter struct {
	Plugins *pluginhost.Launcher
	Dirs    Dirs
	Logger  hclog.Logger

	found foundPlugins
}

// Started is a plugin that described itself, with the settings that it will get.
type Started struct {
	Block    *config.Provider
	Spec     pluginhost.Spec
	Process  *pluginhost.Process // nil if it did not start
	Settings sdk.Settings
	// StateDir is the process's own, Abandoned are those of earlier ones.
	StateDir  string
	Abandoned []string
}

// Start starts a plugin for each block, side by side, since only they know the schema of
// their settings, and checks the settings. Every mistake in any of them is reported. With
// an error, too, the caller ends what was started.
func (s *Starter) Start(ctx context.Context, cfg *config.Config, blocks []*config.Provider, makeDir MakeDir) ([]Started, error) {
	all, problems := make([]Started, len(blocks)), make([]config.Diagnostics, len(blocks))
	var group sync.WaitGroup
	for i, block := range blocks {
		group.Go(func() { all[i], problems[i] = s.start(ctx, cfg, block, makeDir) })
	}
	group.Wait()
	var diags config.Diagnostics
	for _, p := range problems {
		diags = diags.With(p)
	}
	if ctx.Err() != nil {
		return all, ctx.Err()
	}
	if diags.HasErrors() {
		return all, diags
	}
	return all, nil
}

// Stop ends plugins side by side.
func Stop(started []Started) {
	ctx, cancel := context.WithTimeout(context.Background(), StopTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, one := range started {
		if one.Process != nil {
			group.Go(func() { one.Process.Stop(ctx) })
		}
	}
	group.Wait()
}

// Discard ends plugins side by side and removes their state directories.
func (s *Starter) Discard(started []Started) {
	Stop(started)
	var dirs []string
	for _, one := range started {
		if one.StateDir != "" {
			dirs = append(dirs, one.StateDir)
		}
	}
	if err := s.Dirs.RemoveAll(dirs); err != nil {
		s.Logger.Warn("state directories of plugins that were tried could not be removed", "error", err)
	}
}

// start starts a plugin, checks its settings and makes its state directory. With
// errors the caller stops the process, if there is one.
func (s *Starter) start(ctx context.Context, cfg *config.Config, block *config.Provider, makeDir MakeDir) (Started, config.Diagnostics) {
	spec := SpecOf(cfg, block)
	process, err := s.Plugins.Launch(ctx, spec)
	if err != nil {
		// The diagnostic has everything but the plugin's last words.
		if failed, ok := errors.AsType[*pluginhost.LaunchError](err); ok && failed.Stderr != "" {
			s.Logger.Error("a plugin did not start", "provider", block.Label, "stderr", failed.Stderr)
		}
		return Started{}, block.Diagnose(err, nil)
	}
	one := Started{Block: block, Spec: spec, Process: process}
	var diags config.Diagnostics
	one.Settings, diags = validated(ctx, process, block)
	if diags.HasErrors() {
		return one, diags
	}
	if one.StateDir, one.Abandoned, err = makeDir(block.Label); err != nil {
		return one, diags.With(block.Diagnose(err, nil))
	}
	return one, diags
}

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

// SpecOf says which executable a block asks for, and with which environment.
func SpecOf(cfg *config.Config, block *config.Provider) pluginhost.Spec {
	return pluginhost.Spec{Label: block.Label, Dir: cfg.PluginDir, Plugin: block.Plugin, SHA256: block.SHA256, Env: block.Env, Secrets: block.Secrets()}
}

// Inspect asks the plugin of a block what it is and what is wrong with the settings of
// the block. The error says why it cannot be asked.
func (s *Starter) Inspect(ctx context.Context, cfg *config.Config, block *config.Provider) (sdk.Description, config.Diagnostics, error) {
	process, err := s.Plugins.Launch(ctx, SpecOf(cfg, block))
	if err != nil {
		return sdk.Description{}, nil, err
	}
	defer process.Stop(ctx)
	_, diags := validated(ctx, process, block)
	return process.Provider().Describe(), diags, nil
}

// Describe asks the plugin of a block what it is.
func (s *Starter) Describe(ctx context.Context, cfg *config.Config, block *config.Provider) (sdk.Description, error) {
	process, err := s.Plugins.Launch(ctx, SpecOf(cfg, block))
	if err != nil {
		return sdk.Description{}, err
	}
	defer Stop([]Started{{Process: process}})
	return process.Provider().Describe(), nil
}
