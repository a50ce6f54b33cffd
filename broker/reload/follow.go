package reload

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/watch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// secondLook is how long after a file that is wrong it is read again before that is
// told: it may have been read in the middle of being written.
const secondLook = 100 * time.Millisecond

// errSuperseded ends a reload of files that are others by now, errGoesOn is the answer to
// who does not wait for the end of one.
var (
	errSuperseded = sdk.Errorf(sdk.CodeConflict, "the files have changed again, and what they say now is tried instead")
	errGoesOn     = sdk.Errorf(sdk.CodeUnavailable, "it takes longer than a request may, and goes on")
)

// pendingReload is one that starts providers.
type pendingReload struct {
	end    context.CancelFunc
	done   chan struct{}
	reload admin.Reload // and err, once done is closed
	err    error
}

// Follow works until ctx ends.
func (r *Reloader) Follow(ctx context.Context) {
	watcher := watch.New(r.Logger.Named("config"))
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { watcher.Run(ctx) })
	r.mu.Lock()
	r.watcher = watcher
	r.watch(r.inForce().Config)
	r.mu.Unlock()
	_, _ = r.Read(ctx, admin.TriggerFile) // what was saved since they were read for the start
	for {
		select {
		case <-ctx.Done():
			return
		case <-watcher.Changed():
			_, _ = r.Read(ctx, admin.TriggerFile) // told by attempt
		case <-r.again:
			_, _ = r.Read(ctx, admin.TriggerFile)
		case <-r.Signals:
			_, _ = r.Read(ctx, admin.TriggerSignal)
		}
	}
}

// Read loads the files and tries what is in them. Only an administrator waits for
// providers that are started for that.
func (r *Reloader) Read(ctx context.Context, trigger admin.Trigger) (admin.Reload, error) {
	reload, pending, err := r.readNow(ctx, trigger)
	if err != nil || pending == nil || trigger != admin.TriggerAPI {
		return reload, err
	}
	select {
	case <-pending.done:
		return pending.reload, pending.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return reload, errGoesOn
		}
		return reload, ctx.Err()
	}
}

// readNow does all that starts no provider.
func (r *Reloader) readNow(ctx context.Context, trigger admin.Trigger) (admin.Reload, *pendingReload, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	cfg, diags := r.load()
	if diags.HasErrors() && trigger == admin.TriggerFile && cfg.Revision != r.tried {
		r.mu.Unlock()
		select {
		case <-time.After(secondLook):
		case <-ctx.Done():
			return admin.Reload{}, nil, ctx.Err()
		}
		cfg, diags = r.load()
	}
	begun := admin.Reload{Trigger: trigger, Diagnostics: diags, Revision: cfg.Revision, At: time.Now()}

	r.watch(cfg)
	// The same again would come to the same; who signals wants it tried.
	if trigger == admin.TriggerFile && cfg.Revision == r.tried {
		r.mu.Unlock()
		return admin.Reload{}, nil, nil
	}
	r.tried = cfg.Revision
	if diags.HasErrors() {
		begun.Generation = r.inForce().Number
		r.mu.Unlock()
		r.remember(begun)
		return begun, nil, diags
	}
	beside, pending := r.provide(begun, cfg)
	r.mu.Unlock()
	if pending != nil && !beside {
		return begun, pending, nil
	}
	reload, err := r.attempt(ctx, begun, &fileSource{r, cfg})
	if err != nil && ctx.Err() != nil {
		r.forget() // it was not tried, as far as anybody knows
	}
	return reload, pending, err
}

// provide finds out which providers have to be started for what the files say, and has
// that done, in the background. beside says that the rest need not wait for it.
func (r *Reloader) provide(begun admin.Reload, cfg *config.Config) (beside bool, pending *pendingReload) {
	t := &transition{Reloader: r}
	missing := t.plan(r.inForce(), cfg)
	if len(missing) == 0 || needsRestart(t.from.Config, cfg).HasErrors() {
		r.supersede(nil)
		return true, nil
	}
	// What is asked for again, by a signal after the save, comes in force as a whole too.
	again := r.wanted != nil && r.wanted.Revision == cfg.Revision
	if again && r.pending != nil {
		return false, r.pending
	}
	beside = !again && r.differsBeside(cfg)
	if !beside || r.pending == nil {
		r.supersede(cfg)
		r.begin(begun)
	}
	r.wanted = cfg
	return beside, r.pending
}

// differsBeside reports whether a configuration wants the same providers as the files
// have wanted before, without being given them.
func (r *Reloader) differsBeside(cfg *config.Config) bool {
	if sharedFile(cfg) != "" {
		return false // all brokers have the whole of it or nothing
	}
	return r.wanted != nil && r.wanted.PluginDir == cfg.PluginDir &&
		slices.EqualFunc(r.wanted.Providers, cfg.Providers, (*config.Provider).Equal)
}

// supersede gives up what is being started for files of before.
func (r *Reloader) supersede(wanted *config.Config) {
	r.wanted = wanted
	if r.pending != nil {
		r.pending.end()
		r.pending = nil
	}
}

// begin starts what the files want, in the background.
func (r *Reloader) begin(begun admin.Reload) {
	ctx, end := context.WithCancel(r.Host.Life)
	p := &pendingReload{end: end, done: make(chan struct{})}
	r.pending = p
	r.Tasks.Go("start providers for the configuration", func() {
		defer close(p.done)
		defer end()
		p.err = errSuperseded // if it ends in a panic, too
		defer r.ended(p)
		p.reload, p.err = r.attempt(ctx, begun, &pendingSource{fileSource{Reloader: r}, p})
	})
}

// ended forgets a reload that is over. What was refused stays wanted.
func (r *Reloader) ended(p *pendingReload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending != p {
		p.err = errSuperseded
		return
	}
	r.pending = nil
}

// watch follows the files of a configuration.
func (r *Reloader) watch(cfg *config.Config) {
	if r.watcher != nil {
		r.watcher.Follow(paths(cfg))
	}
}

// load reads the files, and locks Reloader.mu: what an administrator has saved
// since they were read would be undone.
func (r *Reloader) load() (*config.Config, config.Diagnostics) {
	for {
		r.mu.Lock()
		before := r.saves
		r.mu.Unlock()
		cfg, diags := r.Load()
		r.mu.Lock()
		if r.saves == before {
			return cfg, diags
		}
		r.mu.Unlock()
	}
}

func (r *Reloader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = ""
}

// DryRun says what would become of the files if they were read now. Mistakes in
// them are part of what it says.
func (r *Reloader) DryRun(ctx context.Context) (admin.Reload, error) {
	cfg, diags := r.Load()
	return r.Preview(ctx, admin.Reload{Trigger: admin.TriggerAPI, Diagnostics: diags}, cfg)
}

// Preview says what would become of a configuration, of which begun says what is known
// before.
func (r *Reloader) Preview(ctx context.Context, begun admin.Reload, cfg *config.Config) (admin.Reload, error) {
	began := time.Now()
	reload := begun
	reload.DryRun, reload.Generation, reload.Revision = true, r.inForce().Number, cfg.Revision
	if !reload.Diagnostics.HasErrors() {
		change, err := r.tryOut(ctx, cfg)
		if ctx.Err() != nil {
			return reload, ctx.Err()
		}
		reload.Change, reload.Applied = change, !change.Empty()
		if err != nil {
			reload.Diagnostics = reload.Diagnostics.With(asDiagnostics(cfg, err))
		}
	}
	reload.At, reload.Took = time.Now(), time.Since(began)
	return reload, nil
}

// tryOut says what a reload would change. Plugins that would be started are, to
// check their settings, but they are not configured.
func (r *Reloader) tryOut(ctx context.Context, cfg *config.Config) (admin.Change, error) {
	t := &transition{Reloader: r}
	defer t.rollback()
	err := t.launch(ctx, t.plan(r.inForce(), cfg))
	if diags := needsRestart(t.from.Config, cfg); diags.HasErrors() {
		if launched, ok := errors.AsType[config.Diagnostics](err); ok {
			diags = diags.With(launched)
		}
		err = diags
	}
	return t.change, err
}
