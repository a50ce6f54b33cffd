package broker

import (
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// asRead is what the files said when they were read, as far as it starts no provider.
type asRead struct {
	files *followed
	cfg   *config.Config
}

var _ source = (*asRead)(nil)

func (a *asRead) Config() *config.Config {
	if !a.files.differsBeside(a.cfg) {
		return a.cfg
	}
	return withProvidersOf(a.files.catalog.generation(), a.cfg)
}

func (a *asRead) Fresh() bool { return a.files.tried == a.cfg.Revision }

func (a *asRead) Renew() error { return errSuperseded }

func (a *asRead) Save() error { return nil }

func (a *asRead) takesTurns() bool { return false }

func (a *asRead) written() bool { return false }

func (a *asRead) committed() {}

// asWanted is what the files say by now, as long as nothing else takes its place.
type asWanted struct {
	asRead
	pending *pendingReload
}

func (a *asWanted) Fresh() bool { return a.files.pending == a.pending }

func (a *asWanted) Config() *config.Config { return a.files.wanted }

func (a *asWanted) committed() { a.files.wanted = nil }

// drafted is a change of the files by an administrator.
type drafted struct {
	admin.Draft
	files *followed
}

var _ source = (*drafted)(nil)

// Fresh is false where others have changed the files by the same way. What was changed by
// hand is a conflict, which Save tells.
func (d *drafted) Fresh() bool {
	from, now := d.Revisions()
	return now == from || now != d.files.saved
}

func (d *drafted) Config() *config.Config {
	if !d.files.differsBeside(d.Draft.Config()) {
		return d.Draft.Config()
	}
	return withProvidersOf(d.files.catalog.generation(), d.Draft.Config())
}

func (d *drafted) takesTurns() bool { return d.Quick() }

func (d *drafted) written() bool { return true }

func (d *drafted) committed() {
	cfg := d.Draft.Config()
	d.files.tried, d.files.saved = cfg.Revision, cfg.Revision
	d.files.saves++
	d.files.watch(cfg)
	if d.files.differsBeside(cfg) {
		d.files.wanted = cfg // what is being started for them goes on
	} else {
		d.files.supersede(nil)
	}
}

// withProvidersOf is a configuration with the providers that a generation has. Which of
// them serve requests is taken over too, as far as they are there.
func withProvidersOf(g *generation, cfg *config.Config) *config.Config {
	merged := *cfg
	merged.Revision = g.cfg.Revision // the files say more
	merged.PluginDir, merged.Providers = g.cfg.PluginDir, nil
	for _, block := range g.cfg.Providers {
		if now := cfg.Provider(block.Label); now != nil && now.Equal(block) {
			block = now // in its place
		}
		merged.Providers = append(merged.Providers, block)
	}
	for _, label := range slices.Concat([]string{cfg.ActiveProvider}, cfg.FallbackProviders) {
		if merged.Provider(label) == nil {
			merged.ActiveProvider, merged.FallbackProviders, merged.FallbackWritten = g.cfg.ActiveProvider, g.cfg.FallbackProviders, g.cfg.FallbackWritten
			break
		}
	}
	return &merged
}
