package reload

import (
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// source says what is to come in force. Renew is called without Reloader.mu, all
// else by who holds that.
type source interface {
	Config() *config.Config
	// Fresh reports whether that still holds; else Renew makes it so.
	Fresh() bool
	Renew() error
	// Save writes it, if there is something to save: when it is known to work, and before
	// it is in force.
	Save() error
	// takesTurns says that others of its kind wait while it is renewed, which takes no time:
	// who is always overtaken would not come to an end.
	takesTurns() bool
	// written says that there is something to save.
	written() bool
	// committed is told that it is in force.
	committed()
}

// fileSource is what the files said when they were read, as far as it starts no provider.
type fileSource struct {
	*Reloader
	cfg *config.Config
}

var _ source = (*fileSource)(nil)

func (s *fileSource) Config() *config.Config {
	if !s.differsBeside(s.cfg) {
		return s.cfg
	}
	return withProvidersOf(s.inForce(), s.cfg)
}

func (s *fileSource) Fresh() bool { return s.tried == s.cfg.Revision }

func (s *fileSource) Renew() error { return errSuperseded }

func (s *fileSource) Save() error { return nil }

func (s *fileSource) takesTurns() bool { return false }

func (s *fileSource) written() bool { return false }

func (s *fileSource) committed() {}

// pendingSource is what the files say by now, as long as nothing else takes its place.
type pendingSource struct {
	fileSource
	pending *pendingReload
}

func (s *pendingSource) Fresh() bool { return s.Reloader.pending == s.pending }

func (s *pendingSource) Config() *config.Config { return s.wanted }

func (s *pendingSource) committed() { s.wanted = nil }

// draftSource is a change of the files by an administrator.
type draftSource struct {
	admin.Draft
	reloader *Reloader
}

var _ source = (*draftSource)(nil)

// Fresh is false where others have changed the files by the same way. What was changed by
// hand is a conflict, which Save tells.
func (d *draftSource) Fresh() bool {
	from, now := d.Revisions()
	return now == from || now != d.reloader.saved
}

func (d *draftSource) Config() *config.Config {
	if !d.reloader.differsBeside(d.Draft.Config()) {
		return d.Draft.Config()
	}
	return withProvidersOf(d.reloader.inForce(), d.Draft.Config())
}

func (d *draftSource) takesTurns() bool { return d.Quick() }

func (d *draftSource) written() bool { return true }

func (d *draftSource) committed() {
	cfg := d.Draft.Config()
	d.reloader.tried, d.reloader.saved = cfg.Revision, cfg.Revision
	d.reloader.saves++
	d.reloader.watch(cfg)
	if d.reloader.differsBeside(cfg) {
		d.reloader.wanted = cfg // what is being started for them goes on
	} else {
		d.reloader.supersede(nil)
	}
}

// withProvidersOf is a configuration with the providers that a generation has. Which of
// them serve requests is taken over too, as far as they are there.
func withProvidersOf(g *generation.Generation, cfg *config.Config) *config.Config {
	merged := *cfg
	merged.Revision = g.Config.Revision // the files say more
	merged.PluginDir, merged.Providers = g.Config.PluginDir, nil
	for _, block := range g.Config.Providers {
		if now := cfg.Provider(block.Label); now != nil && now.Equal(block) {
			block = now // in its place
		}
		merged.Providers = append(merged.Providers, block)
	}
	for _, label := range slices.Concat([]string{cfg.ActiveProvider}, cfg.FallbackProviders) {
		if merged.Provider(label) == nil {
			merged.ActiveProvider, merged.FallbackProviders, merged.FallbackWritten = g.Config.ActiveProvider, g.Config.FallbackProviders, g.Config.FallbackWritten
			break
		}
	}
	return &merged
}
