package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/watch"
)

// secondLook is how long after a file that is wrong it is read again before that is
// told: it may have been read in the middle of being written.
const secondLook = 100 * time.Millisecond

// follower brings configurations in force, one after the other: those in the files
// whenever they have changed or somebody signals, and what administrators ask for.
type follower struct {
	*broker
	watcher *watch.Watcher
	// tried is the revision of the files that was tried last.
	tried string
}

// configuration is what the metrics say of the reloads.
func (b *broker) configuration() metrics.Configuration {
	totals, g := b.history.Totals(), b.catalog.generation()
	c := metrics.Configuration{
		Generation: g.number,
		Applied:    totals.Applied, Refused: totals.Refused, LastAt: totals.LastAt, LastOK: totals.LastOK,
	}
	if g.cfg != nil && g.cfg.TLS != nil {
		c.CertificateEnds = g.cfg.TLS.Certificate.Leaf.NotAfter
	}
	return c
}

// follow works until ctx ends.
func (b *broker) follow(ctx context.Context) {
	f := &follower{broker: b, watcher: watch.New(b.logger.Named("config")), tried: b.catalog.generation().cfg.Revision}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.watcher.Run(ctx) })
	f.watcher.Follow(paths(b.catalog.generation().cfg))
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.watcher.Changed():
			_, _ = f.read(ctx, admin.TriggerFile) // told by attempt
		case <-b.options.Reload:
			_, _ = f.read(ctx, admin.TriggerSignal)
		case do := <-b.asked:
			f.oblige(do)
		}
	}
}

// oblige does what somebody asked for. A panic must not be the end of following.
func (f *follower) oblige(do func(*follower)) {
	defer func() {
		if r := recover(); r != nil {
			f.logger.Error("panic while the configuration was changed", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	do(f)
}

// read loads the files and tries what is in them.
func (f *follower) read(ctx context.Context, trigger admin.Trigger) (admin.Reload, error) {
	cfg, diags := f.options.Load()
	if diags.HasErrors() && trigger == admin.TriggerFile && cfg.Revision != f.tried {
		select {
		case <-time.After(secondLook):
		case <-ctx.Done():
			return admin.Reload{}, ctx.Err()
		}
		cfg, diags = f.options.Load()
	}
	f.watcher.Follow(paths(cfg))
	// The same again would come to the same; who signals wants it tried.
	if trigger == admin.TriggerFile && cfg.Revision == f.tried {
		return admin.Reload{}, nil
	}
	f.tried = cfg.Revision
	reload, err := f.attempt(ctx, admin.Reload{Trigger: trigger, Diagnostics: diags}, cfg, nil)
	if err != nil && ctx.Err() != nil {
		f.tried = "" // it was not, as far as anybody knows
	}
	return reload, err
}

// rehearse says what would become of the files if they were read now. Mistakes in
// them are part of what it says.
func (f *follower) rehearse(ctx context.Context) (admin.Reload, error) {
	began := time.Now()
	cfg, diags := f.options.Load()
	reload := admin.Reload{
		Trigger: admin.TriggerAPI, Generation: f.catalog.generation().number, Revision: cfg.Revision, Diagnostics: diags,
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

// apply tries a configuration that is written to the files by save, once it is sure
// that it works.
func (f *follower) apply(ctx context.Context, begun admin.Reload, cfg *config.Config, save func() error) (admin.Reload, error) {
	reload, err := f.attempt(ctx, begun, cfg, save)
	if err == nil {
		f.tried = cfg.Revision
		f.watcher.Follow(paths(cfg))
	}
	return reload, err
}

// attempt tries to put a configuration in force and tells what became of it, in the
// Reload and, if it came to nothing, as an error. begun has what is known before.
func (b *broker) attempt(ctx context.Context, begun admin.Reload, cfg *config.Config, save func() error) (admin.Reload, error) {
	began := time.Now()
	reload := begun
	reload.Revision = cfg.Revision
	var err error
	if reload.Diagnostics.HasErrors() {
		err = reload.Diagnostics
	} else {
		before := b.catalog.generation().number
		reload.Change, err = b.reload(ctx, cfg, save)
		if err != nil {
			reload.Diagnostics = reload.Diagnostics.With(asDiagnostics(cfg, err))
		}
		reload.Applied = b.catalog.generation().number != before && err == nil
	}
	reload.Generation = b.catalog.generation().number
	reload.At, reload.Took = time.Now(), time.Since(began)
	if ctx.Err() != nil && err != nil {
		return reload, ctx.Err() // the broker stops, or who asked is gone; nobody wants to know
	}
	if _, unsaved := errors.AsType[*saveError](err); !unsaved { // which says nothing about the configuration
		b.history.Add(reload)
		b.tell(reload)
		if err != nil {
			err = reload.Diagnostics // a port that is taken, too, is the configuration's fault
		}
	}
	return reload, err
}

func (b *broker) tell(r admin.Reload) {
	logger := b.logger.Named("config")
	took := r.Took.Round(time.Millisecond)
	fields := []any{"generation", r.Generation, "trigger", string(r.Trigger)}
	if r.Operation != "" {
		fields = append(fields, "operation", r.Operation)
	}
	switch r.Result() {
	case "refused":
		logger.Error("the new configuration is refused; the one before stays in force", fields...)
	case "applied":
		logger.Info("a new configuration is in force", append(fields, "took", took, "change", r.Change.String())...)
	default:
		logger.Info("the configuration was read again and is the same", fields...)
	}
	for _, d := range r.Diagnostics {
		if d.Severity == config.SeverityError {
			logger.Error(d.Error())
		} else {
			logger.Warn(d.Error())
		}
	}
}

// asDiagnostics makes mistakes of any error, for those who show them.
func asDiagnostics(cfg *config.Config, err error) config.Diagnostics {
	if diags, ok := errors.AsType[config.Diagnostics](err); ok {
		return diags
	}
	d := config.Diagnostic{
		Severity: config.SeverityError, Summary: "The configuration cannot be put in force", Detail: fmt.Sprintf("%v.", err),
	}
	d.File = mainFile(cfg)
	return config.Diagnostics{d}
}

// mainFile is the file that a mistake without a place is about.
func mainFile(cfg *config.Config) string {
	if files := cfg.Files(); len(files) > 0 {
		return files[0].Name
	}
	return ""
}

func paths(cfg *config.Config) (paths []string) {
	for _, f := range cfg.Files() {
		paths = append(paths, f.Path)
	}
	return paths
}
