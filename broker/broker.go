// Package broker puts the daemon together: it takes a configuration, starts the
// providers, serves the API and stops everything in order. Run is its entry.
//
// Each concern is a package below: api (REST), instance (life of sandboxes),
// tenant (who asks), pluginhost (plugin processes), background (goroutines with
// an owner). They do not know each other except through small interfaces; this
// package knows them all.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/sink"
	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/journal"
	"github.com/sandbox-broker/sandbox-broker/broker/launch"
	"github.com/sandbox-broker/sandbox-broker/broker/listen"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/reload"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/statedir"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// answerTimeout is how long the last answers may take to leave at
	// shutdown, when everything else has ended.
	answerTimeout = 5 * time.Second
	// drainGrace is the default of Options.DrainGrace.
	drainGrace = time.Minute
)

// Options of Run.
type Options struct {
	// Logger receives everything. It is required.
	Logger hclog.Logger
	// RuntimeDir is where the private directory for sockets is made; empty
	// for the user's or the system's runtime directory.
	RuntimeDir string
	// Watchdog is the program that watches over plugins, and Adopt has the broker do so
	// where that is killed: see pluginhost.LauncherOptions. Watchdog is required.
	Watchdog string
	Adopt    bool
	// Load reads the configuration again, whenever its files have changed or
	// Reload receives; nil for a configuration that stays as it is.
	Load func() (*config.Config, config.Diagnostics)
	// DrainGrace is how long a plugin that drains may go on to end what nobody uses any
	// more; a minute by default.
	DrainGrace time.Duration
	// Version is told to administrators.
	Version string
	// Reload asks for the configuration to be read again, changed or not.
	Reload <-chan struct{}
	// Ready is called once, when each provider has been tried and the API
	// listens at that address. A provider may be down all the same.
	Ready func(address net.Addr)
	// MetricsReady is called once, before Ready, with the address of the
	// metrics if the configuration wants them.
	MetricsReady func(address net.Addr)
}

// broker is a daemon that runs.
type broker struct {
	options   Options
	logger    hclog.Logger
	state     *statedir.Dir
	store     *store.Store
	audit     *audit.Log
	sinks     *sink.Set
	launcher  *pluginhost.Launcher
	catalog   *generation.Catalog
	starter   *launch.Starter
	host      *generation.Host
	reloader  *reload.Reloader
	quotas    *quota.Keeper
	instances *instance.Service
	server    *api.Server
	gate      *admission.Gate // of the API
	api       *listen.Endpoint
	doors     map[string]*listen.Endpoint // of front doors, by kind
	metrics   *listen.Endpoint
	backups   *statedir.BackupServer
	answers   *idempotency.Answers
	// previewKey is what the file of that key holds.
	previewKey []byte

	// life ends when the broker stops, once the instances are gone. tasks are
	// what goes on in the background as long.
	life    context.Context
	endLife context.CancelFunc
	tasks   *background.Group
	started time.Time
}

// Run is the daemon: it returns when ctx has ended and everything was stopped in
// order, or when it cannot start or go on. The error is config.Diagnostics when
// the configuration is at fault.
func Run(ctx context.Context, cfg *config.Config, options Options) (err error) {
	options.DrainGrace = cmp.Or(options.DrainGrace, drainGrace)
	b := &broker{options: options, logger: options.Logger, catalog: &generation.Catalog{Router: routing.New()}, started: time.Now()}
	b.life, b.endLife = context.WithCancel(context.Background())
	defer b.endLife()
	b.tasks = background.NewGroup(b.logger)
	first := settingsOf(cfg, nil)

	// First of all, so that a taken address is told at once.
	listener, err := listen.AtStart(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	var metricsListener net.Listener
	if cfg.Metrics.Listen != "" {
		if metricsListener, err = listen.AtStart(ctx, cfg.Metrics.Listen); err != nil {
			return err
		}
		defer metricsListener.Close()
	}
	doorListeners := map[string]net.Listener{}
	for _, door := range cfg.FrontDoors {
		if door.Listen == "" {
			continue
		}
		own, err := listen.AtStart(ctx, door.Listen)
		if err != nil {
			return err
		}
		defer own.Close()
		doorListeners[door.Kind] = own
	}
	if b.state, err = statedir.Open(ctx, cfg.StateDir); err != nil {
		return err
	}
	defer closing(&err, b.state.Close)
	state, err := b.state.OpenStore(ctx, b.logger.Named("state"))
	if err != nil {
		return err
	}
	defer closing(&err, state.Close)
	state.SetPatience(first.disk)
	b.store = state
	instances := journal.New(state)
	answers, err := idempotency.Open(state)
	if err != nil {
		return err
	}
	past, err := instances.Load(ctx, b.logger.Named("state"))
	if err != nil {
		return err
	}
	if past.Incomplete, err = statedir.ReportLoss(state, b.logger.Named("state")); err != nil {
		return err
	}
	if b.quotas, err = quota.NewKeeper(quota.Options{
		Rules:   first.quotas,
		Journal: quota.NewStoreJournal(state, b.logger.Named("quota")),
		Logger:  b.logger.Named("quota"),
	}); err != nil {
		return err
	}
	defer b.quotas.Close()
	if err = b.openAudit(cfg.Audit.Dir, first); err != nil {
		return err
	}
	defer closing(&err, b.closeAudit)
	b.quotas.Follow(ctx, b.audit)
	previewKey, err := preview.LoadKey(b.state.PreviewKeyFile())
	if err != nil {
		return err
	}
	b.previewKey = preview.FormatKey(previewKey)
	if b.backups, err = statedir.ServeBackups(b.state.Path(), state.Snapshot, b.logger.Named("state")); err != nil {
		return err
	}
	defer closing(&err, b.backups.Close)
	if b.launcher, err = options.launcher(); err != nil {
		return fmt.Errorf("prepare for plugins: %w", err)
	}
	defer closing(&err, b.launcher.Close)

	b.starter = &launch.Starter{Plugins: b.launcher, Dirs: b.state, Logger: b.logger}
	started, err := b.starter.Start(ctx, cfg, cfg.Providers, b.state.FirstProviderDir)
	if err != nil {
		launch.Stop(started)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	outcomes := metrics.NewOutcomes()
	b.instances = instance.NewService(instance.Options{
		Catalog: b.catalog,
		Limits:  first.instances,
		Logger:  options.Logger.Named("instances"),
		Journal: instances, Past: past, BrokerID: b.state.ID(),
		Quotas: b.quotas, Router: b.catalog.Router, Observer: outcomes,
	})
	b.answers = answers
	b.host = &generation.Host{
		Catalog: b.catalog, Instances: b.instances, Starter: b.starter, Audit: b.audit,
		Logger: b.logger, Life: b.life, Grace: options.DrainGrace,
	}
	b.reloader = reload.New(cfg.Revision, reload.Options{
		Broker: b, Host: b.host, Logger: b.logger, Tasks: b.tasks, Load: options.Load, Signals: options.Reload,
	})
	g := generation.New(cfg, b.host.Supervise(started), nil)
	b.catalog.Set(g)
	b.instances.ReleaseTenants(g.Has)
	b.quotas.Forget(g.Has)
	b.forgetAnswers(g.Has)
	b.quotas.SetRules(quotaRules(cfg, g.Current))
	b.reloader.NoteStart(b.started)
	meter := metrics.New(b.catalog.Metrics, b.reloader.Metrics)
	meter.ShowQuotas(b.quotaMetrics)
	meter.ShowAudit(b.auditState)
	meter.ShowOutcomes(outcomes)
	meter.ShowDisks(b.disks)
	meter.ShowInstances(b.instances.CountByProvider)
	b.gate = admission.NewGate(first.connections, listen.Report(b.logger.Named("api")))
	scrapers := admission.NewGate(listen.ScraperBounds(), listen.Report(b.logger.Named("metrics")))
	meter.ShowConnections(map[string]func() admission.Counts{"api": b.gate.Counts, "metrics": scrapers.Counts})
	b.metrics = listen.New(meter.NewServer(), scrapers, b.logger.Named("metrics"))
	// It serves to the end: a stop is worth looking at too.
	defer func() {
		answers, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		b.metrics.Close(answers)
	}()
	b.showMetrics(metricsListener)
	defer b.stop()

	configurator := admin.NewConfigurator(administration{b})
	if b.server, err = api.NewServer(api.Options{
		Instances:          b.instances,
		Tenants:            b.catalog,
		Admin:              admin.NewService(b.catalog, administration{b}),
		Logger:             options.Logger.Named("api"),
		Meter:              meter,
		Bounds:             first.requests,
		TLS:                first.tls,
		PreviewKey:         previewKey,
		PreviewHosts:       first.previews,
		FrontDoors:         first.doors,
		Version:            options.Version,
		Answers:            answers,
		Configurator:       configurator,
		TenantConfigurator: configurator,
		Quotas:             b.quotas,
		Audit:              b.audit.Err,
		State:              state.Err,
	}); err != nil {
		return err
	}
	b.api = listen.New(b.server, b.gate, b.logger.Named("api"))
	b.doors = map[string]*listen.Endpoint{}
	for kind, server := range b.server.FrontDoors() {
		b.doors[kind] = b.api.Beside(server)
		if own := doorListeners[kind]; own != nil {
			b.openDoor(kind, b.doors[kind], own)
		}
	}
	b.api.MoveTo(listener)
	if err := b.host.AwaitTried(ctx, g.Current); err != nil {
		return err
	}
	b.tasks.Go("keep the directories in place", func() { b.recreateDirs(b.life) })
	b.tasks.Go("watch the plugins' files", func() { b.reloader.WatchExecutables(b.life) })
	if options.Load != nil {
		b.tasks.Go("follow the configuration", func() { b.reloader.Follow(b.life) })
	}
	if options.Ready != nil && ctx.Err() == nil {
		options.Ready(listener.Addr())
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-b.api.Failed():
		return fmt.Errorf("serve: %w", err)
	case err := <-b.metrics.Failed():
		return err
	}
}

// closing adds the error of a close to *err, which stays as it is if there is
// none.
func closing(err *error, closer func() error) {
	if closeErr := closer(); closeErr != nil {
		*err = errors.Join(*err, closeErr)
	}
}

// stop ends everything in the order that loses nothing: no new work, running
// executions finish within the bound, instances are destroyed or left to the next broker,
// the last answers leave, plugins end.
func (b *broker) stop() {
	b.logger.Info("stopping")
	drain, cancel := context.WithTimeout(context.Background(), b.catalog.InForce().Config.Limits.ShutdownTimeout)
	b.instances.Drain(drain)
	// It is read after the wait, which may be long: the last word counts.
	if b.catalog.InForce().Config.OnStop == config.OnStopKeep {
		b.instances.ShutdownKeeping(drain)
	} else {
		b.instances.Shutdown(drain)
	}
	cancel()

	if b.api != nil {
		answers, cancel := context.WithTimeout(context.Background(), answerTimeout)
		var group sync.WaitGroup
		for _, door := range b.doors {
			group.Go(func() { door.Close(answers) })
		}
		b.api.Close(answers)
		group.Wait()
		cancel()
	}
	b.endLife()
	b.tasks.Wait() // an upgrade that is under way shall not add a plugin
	plugins, cancel := context.WithTimeout(context.Background(), launch.StopTimeout)
	defer cancel()
	b.catalog.Stop(plugins)
	b.logger.Info("stopped")
}

// openDoor serves a front door on a listener of its own, or nowhere.
func (b *broker) openDoor(kind string, endpoint *listen.Endpoint, listener net.Listener) {
	endpoint.MoveTo(listener)
	if listener != nil {
		b.logger.Info("front door", "name", kind, "address", listener.Addr().String())
	}
}

// showMetrics serves the metrics on a listener, or nowhere.
func (b *broker) showMetrics(listener net.Listener) {
	b.metrics.MoveTo(listener)
	if listener == nil {
		return
	}
	b.logger.Info("metrics", "address", listener.Addr().String(), "path", metrics.Path)
	if b.options.MetricsReady != nil {
		b.options.MetricsReady(listener.Addr())
	}
}

// Inspect starts the plugin of a provider block, asks what it is and what is wrong
// with the settings of the block, and stops it. The error says why it cannot be asked.
func Inspect(ctx context.Context, cfg *config.Config, block *config.Provider, options Options) (sdk.Description, config.Diagnostics, error) {
	launcher, err := options.launcher()
	if err != nil {
		return sdk.Description{}, nil, err
	}
	defer func() { _ = launcher.Close() }() // a directory left behind is swept at the next start
	starter := launch.Starter{Plugins: launcher, Logger: options.Logger}
	return starter.Inspect(ctx, cfg, block)
}

func (o Options) launcher() (*pluginhost.Launcher, error) {
	return pluginhost.NewLauncher(pluginhost.LauncherOptions{
		RuntimeDir: o.RuntimeDir, Logger: o.Logger, Watchdog: o.Watchdog, Adopt: o.Adopt,
	})
}
