package broker

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

// followed are the files of the configuration. What they say is brought in force,
// whenever they have changed or somebody asks for it.
//
// Providers that have to be started for it may take a minute. What changes meanwhile and
// starts none is not held up: it is brought in force with the providers that there are.
// So it is with what changes beside a provider that was refused.
type followed struct {
	*broker
	// reading is held by who reads the files, until it is known what to do about them.
	reading sync.Mutex

	// The rest is guarded by broker.reloading.

	watcher *watch.Watcher // nil until somebody follows
	// tried is the revision of the files that was tried last.
	tried string
	// saved is the revision that an administrator's change has made last.
	saved string
	saves int // how many there were
	// wanted is what the files say as long as their providers are not in force: they are
	// being started, by pending, or were refused.
	wanted  *config.Config
	pending *pendingReload
}

// pendingReload is one that starts providers.
type pendingReload struct {
	end    context.CancelFunc
	done   chan struct{}
	reload admin.Reload // and err, once done is closed
	err    error
}

func newFollowed(b *broker, cfg *config.Config) *followed {
	return &followed{broker: b, tried: cfg.Revision}
}

// follow works until ctx ends.
func (f *followed) follow(ctx context.Context) {
	watcher := watch.New(f.logger.Named("config"))
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { watcher.Run(ctx) })
	f.reloading.Lock()
	f.watcher = watcher
	f.watch(f.catalog.generation().cfg)
	f.reloading.Unlock()
	_, _ = f.read(ctx, admin.TriggerFile) // what was saved since they were read for the start
	for {
		select {
		case <-ctx.Done():
			return
		case <-watcher.Changed():
			_, _ = f.read(ctx, admin.TriggerFile) // told by attempt
		case <-f.options.Reload:
			_, _ = f.read(ctx, admin.TriggerSignal)
		}
	}
}

// read loads the files and tries what is in them. Only an administrator waits for
// providers that are started for that.
func (f *followed) read(ctx context.Context, trigger admin.Trigger) (admin.Reload, error) {
	reload, pending, err := f.readNow(ctx, trigger)
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
func (f *followed) readNow(ctx context.Context, trigger admin.Trigger) (admin.Reload, *pendingReload, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	cfg, diags := f.load()
	if diags.HasErrors() && trigger == admin.TriggerFile && cfg.Revision != f.tried {
		f.reloading.Unlock()
		select {
		case <-time.After(secondLook):
		case <-ctx.Done():
			return admin.Reload{}, nil, ctx.Err()
		}
		cfg, diags = f.load()
	}
	begun := admin.Reload{Trigger: trigger, Diagnostics: diags, Revision: cfg.Revision, At: time.Now()}

	f.watch(cfg)
	// The same again would come to the same; who signals wants it tried.
	if trigger == admin.TriggerFile && cfg.Revision == f.tried {
		f.reloading.Unlock()
		return admin.Reload{}, nil, nil
	}
	f.tried = cfg.Revision
	if diags.HasErrors() {
		begun.Generation = f.catalog.generation().number
		f.reloading.Unlock()
		f.remember(begun)
		return begun, nil, diags
	}
	beside, pending := f.aim(begun, cfg)
	f.reloading.Unlock()
	if pending != nil && !beside {
		return begun, pending, nil
	}
	reload, err := f.attempt(ctx, begun, &asRead{files: f, cfg: cfg})
	if err != nil && ctx.Err() != nil {
		f.forget() // it was not tried, as far as anybody knows
	}
	return reload, pending, err
}

// aim finds out which providers have to be started for what the files say, and has
// that done, in the background. beside says that the rest need not wait for it.
func (f *followed) aim(begun admin.Reload, cfg *config.Config) (beside bool, pending *pendingReload) {
	t := &transition{broker: f.broker}
	missing := t.aim(f.catalog.generation(), cfg)
	if len(missing) == 0 || needsRestart(t.from.cfg, cfg).HasErrors() {
		f.supersede(nil)
		return true, nil
	}
	// What is asked for again, by a signal after the save, comes in force as a whole too.
	again := f.wanted != nil && f.wanted.Revision == cfg.Revision
	if again && f.pending != nil {
		return false, f.pending
	}
	beside = !again && f.differsBeside(cfg)
	if !beside || f.pending == nil {
		f.supersede(cfg)
		f.begin(begun)
	}
	f.wanted = cfg
	return beside, f.pending
}

// differsBeside reports whether a configuration wants the same providers as the files
// have wanted before, without being given them.
func (f *followed) differsBeside(cfg *config.Config) bool {
	return f.wanted != nil && f.wanted.PluginDir == cfg.PluginDir &&
		slices.EqualFunc(f.wanted.Providers, cfg.Providers, (*config.Provider).Equal)
}

// supersede gives up what is being started for files of before.
func (f *followed) supersede(wanted *config.Config) {
	f.wanted = wanted
	if f.pending != nil {
		f.pending.end()
		f.pending = nil
	}
}

// begin starts what the files want, in the background.
func (f *followed) begin(begun admin.Reload) {
	ctx, end := context.WithCancel(f.life)
	p := &pendingReload{end: end, done: make(chan struct{})}
	f.pending = p
	f.tasks.Go("start providers for the configuration", func() {
		defer close(p.done)
		defer end()
		p.err = errSuperseded // if it ends in a panic, too
		defer f.ended(p)
		p.reload, p.err = f.attempt(ctx, begun, &asWanted{asRead{files: f}, p})
	})
}

// ended forgets a reload that is over. What was refused stays wanted.
func (f *followed) ended(p *pendingReload) {
	f.reloading.Lock()
	defer f.reloading.Unlock()
	if f.pending != p {
		p.err = errSuperseded
		return
	}
	f.pending = nil
}

// watch follows the files of a configuration.
func (f *followed) watch(cfg *config.Config) {
	if f.watcher != nil {
		f.watcher.Follow(paths(cfg))
	}
}

// load reads the files, and locks broker.reloading: what an administrator has saved
// since they were read would be undone.
func (f *followed) load() (*config.Config, config.Diagnostics) {
	for {
		f.reloading.Lock()
		before := f.saves
		f.reloading.Unlock()
		cfg, diags := f.options.Load()
		f.reloading.Lock()
		if f.saves == before {
			return cfg, diags
		}
		f.reloading.Unlock()
	}
}

func (f *followed) forget() {
	f.reloading.Lock()
	defer f.reloading.Unlock()
	f.tried = ""
}

// rehearse says what would become of the files if they were read now. Mistakes in
// them are part of what it says.
func (f *followed) rehearse(ctx context.Context) (admin.Reload, error) {
	began := time.Now()
	cfg, diags := f.options.Load()
	reload := admin.Reload{
		Trigger: admin.TriggerAPI, DryRun: true, Generation: f.catalog.generation().number, Revision: cfg.Revision, Diagnostics: diags,
	}
	if !diags.HasErrors() {
		change, err := f.dryRun(ctx, cfg)
		if ctx.Err() != nil {
			return reload, ctx.Err()
		}
		reload.Change, reload.Applied = change, !change.Empty()
		if err != nil {
			reload.Diagnostics = diags.With(asDiagnostics(cfg, err))
		}
	}
	reload.At, reload.Took = time.Now(), time.Since(began)
	return reload, nil
}
