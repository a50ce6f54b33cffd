package launch

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxFound is how many plugins without a block are told of: a directory may hold more
// files than anybody configures.
const maxFound = 50

// describedAtOnce is how many of them are started side by side.
const describedAtOnce = 4

// foundPlugins remembers what plugins without a block in the configuration say of
// themselves, so that each is started once and not at every look.
type foundPlugins struct {
	mu    sync.Mutex
	known map[pluginhost.Installed]foundPlugin
}

type foundPlugin struct {
	description sdk.Description
	err         error
}

// Find lists the plugins in the configured directory for which there is no block.
func (s *Starter) Find(ctx context.Context, cfg *config.Config) ([]admin.Provider, error) {
	var files []pluginhost.Installed
	for _, file := range pluginhost.InstalledIn(cfg.PluginDir) {
		used := slices.ContainsFunc(cfg.Providers, func(p *config.Provider) bool { return p.Plugin == file.Name })
		if !used && len(files) < maxFound {
			files = append(files, file)
		}
	}
	s.found.mu.Lock()
	defer s.found.mu.Unlock()
	told := make([]foundPlugin, len(files))
	var group sync.WaitGroup
	room := make(chan struct{}, describedAtOnce)
	for i, file := range files {
		if known, ok := s.found.known[file]; ok {
			told[i] = known
			continue
		}
		group.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			told[i] = s.look(ctx, cfg, file.Name)
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.found.known = map[pluginhost.Installed]foundPlugin{}
	var list []admin.Provider
	for i, file := range files {
		s.found.known[file] = told[i]
		list = append(list, admin.NotConfigured(pluginhost.Executable{Name: file.Name, Path: file.Path}, told[i].description, told[i].err))
	}
	return list, nil
}

// look asks one plugin what it is. Whoever puts a file into the directory shall not end
// the broker with it: a panic is an error of that plugin.
func (s *Starter) look(ctx context.Context, cfg *config.Config, plugin string) (found foundPlugin) {
	defer func() {
		if r := recover(); r != nil {
			s.Logger.Error("panic while a plugin was asked what it is", "plugin", plugin, "panic", r, "stack", string(debug.Stack()))
			found = foundPlugin{err: sdk.Errorf(sdk.CodeInternal, "the plugin %q made the broker stumble, which is a bug", plugin)}
		}
	}()
	found.description, found.err = s.Describe(ctx, cfg, &config.Provider{Label: admin.LabelOf(plugin), Plugin: plugin})
	return found
}
