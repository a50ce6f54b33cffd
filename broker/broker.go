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
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/journal"
	"github.com/sandbox-broker/sandbox-broker/broker/listen"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/statedir"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/config"
)

const (
	// answerTimeout is how long the last answers may take to leave at
	// shutdown, when everything else has ended.
	answerTimeout = 5 * time.Second
	// stopTimeout bounds the stop of all plugins.
	stopTimeout = 10 * time.Second
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
	catalog   *catalog
	found     foundPlugins
	quotas    *quota.Keeper
	instances *instance.Service
	server    *api.Server
	gate      *admission.Gate // of the API
	api       *listen.Endpoint
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
	// reloading is held by whoever changes the generation, for as long as that takes and
	// no longer; providing has room for the one who starts providers for a next one.
	reloading sync.Mutex
	providing chan struct{}
	// saving has room for the one administrator whose quick change is next.
	saving  chan struct{}
	history admin.History
	files   *followed
	started time.Time
}

// Run is the daemon: it returns when ctx has ended and everything was stopped in
// order, or when it cannot start or go on. The error is config.Diagnostics when
// the configuration is at fault.
func Run(ctx context.Context, cfg *config.Config, options Options) (err error) {
	options.DrainGrace = cmp.Or(options.DrainGrace, drainGrace)
	b := &broker{options: options, logger: options.Logger, catalog: &catalog{router: routing.New()}, providing: make(chan struct{}, 1), saving: make(chan struct{}, 1), started: time.Now()}
	b.life, b.endLife = context.WithCancel(context.Background())
	defer b.endLife()
	b.tasks = background.NewGroup(b.logger)
	b.files = newFollowed(b, cfg)

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
	if b.state, err = statedir.Open(cfg.StateDir); err != nil {
		return err
	}
	defer closing(&err, b.state.Close)
	state, err := b.state.OpenStore(ctx, b.logger.Named("state"))
	if err != nil {
		return err
	}
	defer closing(&err, state.Close)
	state.SetPatience(cfg.Limits.DiskTimeout)
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
		Rules:   quotaRules(cfg, nil),
		Journal: quota.NewStoreJournal(state, b.logger.Named("quota")),
		Logger:  b.logger.Named("quota"),
	}); err != nil {
		return err
	}
	defer b.quotas.Close()
	if err = b.openAudit(cfg); err != nil {
		return err
	}
	defer closing(&err, b.closeAudit)
	previewKey, err := preview.LoadKey(b.state.PreviewKeyFile())
	if err != nil {
		return err
	}
	b.previewKey = preview.FormatKey(previewKey)
	if b.backups, err = statedir.ServeBackups(b.state.Path(), state.Snapshot, b.logger.Named("state")); err != nil {
		return err
	}
	defer closing(&err, b.backups.Close)
	if b.launcher, err = pluginhost.NewLauncher(pluginhost.LauncherOptions{
		RuntimeDir: options.RuntimeDir,
		Logger:     options.Logger,
		Watchdog:   options.Watchdog, Adopt: options.Adopt,
	}); err != nil {
		return fmt.Errorf("prepare for plugins: %w", err)
	}
	defer closing(&err, b.launcher.Close)

	started, err := b.launchAll(ctx, cfg)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	outcomes := metrics.NewOutcomes()
	b.instances = instance.NewService(instance.Options{
		Catalog: b.catalog,
		Limits:  instanceLimits(cfg.Limits),
		Logger:  options.Logger.Named("instances"),
		Journal: instances, Past: past, BrokerID: b.state.ID(),
		Quotas: b.quotas, Router: b.catalog.router, Observer: outcomes,
	})
	b.answers = answers
	b.catalog.set(newGeneration(1, cfg, b.supervise(started), nil))
	b.instances.ReleaseTenants(b.catalog.generation().has)
	b.quotas.Forget(b.catalog.generation().has)
	b.forgetAnswers(b.catalog.generation().has)
	b.quotas.SetRules(b.catalog.generation().quotaRules())
	b.history.Note(admin.Reload{At: b.started, Trigger: admin.TriggerStart, Generation: 1, Applied: true, Revision: cfg.Revision})
	meter := metrics.New(b.catalog.states, b.configuration)
	meter.ShowQuotas(b.quotaMetrics)
	meter.ShowAudit(b.auditState)
	meter.ShowOutcomes(outcomes)
	meter.ShowDisks(b.disks)
	meter.ShowInstances(b.instances.CountByProvider)
	b.gate = admission.NewGate(listen.Bounds(cfg.Connections), listen.Report(b.logger.Named("api")))
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
		Bounds:             requestBounds(cfg),
		TLS:                serverTLS(cfg.TLS),
		PreviewKey:         previewKey,
		PreviewHosts:       previewHosts(cfg.Previews),
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
	b.api.MoveTo(listener)
	if err := b.awaitProviders(ctx); err != nil {
		return err
	}
	b.tasks.Go("keep the directories in place", func() { b.recreateDirs(b.life) })
	b.tasks.Go("watch the plugins' files", func() { b.watchExecutables(b.life) })
	if options.Load != nil {
		b.tasks.Go("follow the configuration", func() { b.files.follow(b.life) })
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
	drain, cancel := context.WithTimeout(context.Background(), b.catalog.generation().cfg.Limits.ShutdownTimeout)
	b.instances.Drain(drain)
	// It is read after the wait, which may be long: the last word counts.
	if b.catalog.generation().cfg.OnStop == config.OnStopKeep {
		b.instances.ShutdownKeeping(drain)
	} else {
		b.instances.Shutdown(drain)
	}
	cancel()

	if b.api != nil {
		answers, cancel := context.WithTimeout(context.Background(), answerTimeout)
		b.api.Close(answers)
		cancel()
	}
	b.endLife()
	b.tasks.Wait() // an upgrade that is under way shall not add a plugin
	plugins, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	b.catalog.stop(plugins)
	b.logger.Info("stopped")
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
