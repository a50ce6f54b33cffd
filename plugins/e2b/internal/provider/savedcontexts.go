package provider

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// savedContext is what of a context outlives this process: the code interpreter lists
// its kernels, but knows nothing of whose they are and of what they were made with.
type savedContext struct {
	ID        string            `json:"id"`
	Language  sdk.Language      `json:"language"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	Fresh     bool              `json:"fresh,omitempty"`
}

// saveContexts writes down the contexts of a sandbox. If that fails, a later process
// will not know them; for this one nothing is lost.
func (sb *sandbox) saveContexts() {
	sb.saving.Lock()
	defer sb.saving.Unlock()
	sb.mu.Lock()
	var all []savedContext
	for _, c := range sb.contexts {
		c.mu.Lock()
		all = append(all, savedContext{c.state.ID, c.state.Language, c.state.Cwd, c.env, c.state.CreatedAt, c.fresh})
		c.mu.Unlock()
	}
	sb.mu.Unlock()
	if _, saved := sb.p.contexts.Get(sb.id); !saved && len(all) == 0 {
		return
	}
	if err := sb.p.contexts.Put(sb.id, all); err != nil {
		sb.p.logger.Warn("contexts could not be written down; they are forgotten when the plugin restarts", "sandbox", sb.id, "error", err)
	}
	if sb.gone.Err() != nil && sb.p.life.Err() == nil { // meanwhile
		sb.p.forgetContexts(sb.id)
	}
}

// forgetContexts is for a sandbox that is gone.
func (p *Provider) forgetContexts(id string) {
	if err := p.contexts.Remove(id); err != nil {
		p.logger.Warn("what was written down about a sandbox that is gone is left", "sandbox", id, "error", err)
	}
}

// forgetContextsOfOthers forgets what is written down about sandboxes that have ended
// while nobody looked.
func (p *Provider) forgetContextsOfOthers(found []control.Detail) {
	for id := range p.contexts.All() {
		if !slices.ContainsFunc(found, func(d control.Detail) bool { return d.SandboxID == id }) {
			p.forgetContexts(id)
		}
	}
}

// restoreContexts makes the contexts known that an earlier process has made, once for
// each sandbox: those that are written down and that the code interpreter still has.
func (sb *sandbox) restoreContexts(ctx context.Context) error {
	if sb.restored.Load() {
		return nil
	}
	select {
	case sb.restoring <- struct{}{}:
		defer func() { <-sb.restoring }()
	case <-ctx.Done():
		return ctx.Err()
	}
	saved, _ := sb.p.contexts.Get(sb.id)
	if sb.restored.Load() || len(saved) == 0 {
		sb.restored.Store(true)
		return nil
	}
	kernels, err := sb.interpreter().Contexts(ctx)
	if err != nil {
		return sb.explain(ctx, err)
	}
	sb.memoryKills(ctx)
	sb.mu.Lock()
	for _, s := range saved {
		if slices.Contains(kernels, s.ID) {
			sb.contexts = append(sb.contexts, sb.contextOf(sdk.CodeContext{ID: s.ID, Language: s.Language, Cwd: s.Cwd, CreatedAt: s.CreatedAt}, s.Env, s.Fresh))
		}
	}
	sb.mu.Unlock()
	sb.restored.Store(true)
	sb.saveContexts()
	return nil
}
