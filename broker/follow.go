package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/watch"
)

// secondLook is how long after a file that is wrong it is read again before that is
// told: it may have been read in the middle of being written.
const secondLook = 100 * time.Millisecond

// keptReloads is how many reloads are remembered.
const keptReloads = 50

// Reload is one attempt to change the configuration, for people.
type Reload struct {
	// At is when it was over, Took how long it took.
	At   time.Time
	Took time.Duration
	// Trigger is what made the broker look: start, file, signal or api.
	Trigger string
	// Generation that was in force afterwards; Applied says whether it is new.
	Generation int
	Applied    bool
	// Revision is config.Config's.
	Revision string
	Change   Change
	// Diagnostics say why not, and hold warnings.
	Diagnostics config.Diagnostics
}

// reloads remembers what became of the attempts.
type reloads struct {
	mu      sync.Mutex
	kept    []Reload // the newest last
	applied int
	refused int
}

func (r *reloads) add(reload Reload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reload.Applied {
		r.applied++
	} else if reload.Diagnostics.HasErrors() {
		r.refused++
	}
	r.kept = append(r.kept, reload)
	if len(r.kept) > keptReloads {
		r.kept = slices.Clone(r.kept[len(r.kept)-keptReloads:])
	}
}

// configuration is what the metrics say of the reloads.
func (b *broker) configuration() metrics.Configuration {
	generation := b.catalog.generation().number
	b.reloads.mu.Lock()
	defer b.reloads.mu.Unlock()
	c := metrics.Configuration{Generation: generation, Applied: b.reloads.applied, Refused: b.reloads.refused}
	if n := len(b.reloads.kept); n > 0 {
		last := b.reloads.kept[n-1]
		c.LastAt, c.LastOK = last.At, !last.Diagnostics.HasErrors()
	}
	return c
}

// follow reloads whenever the files have changed or somebody signals, until ctx
// ends.
func (b *broker) follow(ctx context.Context) {
	watcher := watch.New(b.logger.Named("config"))
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { watcher.Run(ctx) })
	watcher.Follow(paths(b.catalog.generation().cfg))
	tried := b.catalog.generation().cfg.Revision
	for {
		trigger := "file"
		select {
		case <-ctx.Done():
			return
		case <-watcher.Changed():
		case <-b.options.Reload:
			trigger = "signal"
		}
		cfg, diags := b.options.Load()
		if diags.HasErrors() && trigger == "file" && cfg.Revision != tried {
			select {
			case <-time.After(secondLook):
			case <-ctx.Done():
				return
			}
			cfg, diags = b.options.Load()
		}
		watcher.Follow(paths(cfg))
		// The same again would come to the same; who signals wants it tried.
		if trigger == "file" && cfg.Revision == tried {
			continue
		}
		tried = cfg.Revision
		b.attempt(ctx, trigger, cfg, diags)
	}
}

// attempt tries to put a configuration in force and tells what became of it.
func (b *broker) attempt(ctx context.Context, trigger string, cfg *config.Config, diags config.Diagnostics) Reload {
	began := time.Now()
	reload := Reload{Trigger: trigger, Revision: cfg.Revision, Diagnostics: diags}
	if !diags.HasErrors() {
		before := b.catalog.generation().number
		change, err := b.reload(ctx, cfg)
		reload.Change = change
		if err != nil {
			reload.Diagnostics = diags.With(asDiagnostics(cfg, err))
		}
		reload.Applied = b.catalog.generation().number != before && err == nil
	}
	reload.Generation = b.catalog.generation().number
	reload.At, reload.Took = time.Now(), time.Since(began)
	if ctx.Err() != nil {
		return reload // the broker stops; nobody wants to know
	}
	b.reloads.add(reload)
	b.tell(reload)
	return reload
}

func (b *broker) tell(r Reload) {
	logger := b.logger.Named("config")
	took := r.Took.Round(time.Millisecond)
	switch {
	case r.Diagnostics.HasErrors():
		logger.Error("the new configuration is refused; the one before stays in force", "generation", r.Generation, "trigger", r.Trigger)
	case r.Applied:
		logger.Info("a new configuration is in force", "generation", r.Generation, "trigger", r.Trigger, "took", took, "change", r.Change.String())
	default:
		logger.Info("the configuration was read again and is the same", "generation", r.Generation, "trigger", r.Trigger)
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
	if files := cfg.Files(); len(files) > 0 {
		d.File = files[0].Name
	}
	return config.Diagnostics{d}
}

func paths(cfg *config.Config) (paths []string) {
	for _, f := range cfg.Files() {
		paths = append(paths, f.Path)
	}
	return paths
}
