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
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/broker/adoption"
	"github.com/sandbox-broker/sandbox-broker/broker/agreement"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	v1 "github.com/sandbox-broker/sandbox-broker/broker/api/v1"
	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/heads"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/sink"
	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/journal"
	"github.com/sandbox-broker/sandbox-broker/broker/launch"
	"github.com/sandbox-broker/sandbox-broker/broker/listen"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics/history"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/placement"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/reload"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/statedir"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	"github.com/sandbox-broker/sandbox-broker/broker/templates"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing"
	"github.com/sandbox-broker/sandbox-broker/broker/volume"
	"github.com/sandbox-broker/sandbox-broker/broker/webhook"
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
	// Sockets are those that the broker was started with; nil for none.
	Sockets *listen.Sockets
	// Reload asks for the configuration to be read again, changed or not.
	Reload <-chan struct{}
	// Ready is called once, when each provider has been tried and the API
	// listens at that address. A provider may be down all the same.
	Ready func(address net.Addr)
	// Directory knows what other brokers have that are this one's peers; nil where it is
	// alone.
	Directory instance.Directory
	// PeersAt is told at which address peers reach this broker: before Ready if they do, and
	// whenever that changes; "" for nowhere any more.
	PeersAt func(address string)
	// MetricsReady is called once, before Ready, with the address of the
	// metrics if the configuration wants them.
	MetricsReady func(address net.Addr)
}

// broker is a daemon that runs.
type broker struct {
	options   Options
	logger    hclog.Logger
	state     *statedir.Dir
	store     keeper
	database  *postgres.Store // nil where the state is in a file
	audit     *audit.Log
	sinks     *sink.Set
	launcher  *pluginhost.Launcher
	tracing   *tracing.Tracing
	catalog   *generation.Catalog
	starter   *launch.Starter
	host      *generation.Host
	reloader  *reload.Reloader
	templates *templates.Builder
	quotas    *quota.Keeper
	instances *instance.Service
	snapshots *snapshot.Service
	runs      *executions.Keeper
	webhooks  *webhook.Deliverer
	volumes   *volume.Service
	server    *api.Server
	gate      *admission.Gate // of the API
	api       *listen.Endpoint
	doors     map[string]*listen.Endpoint // of front doors, by kind
	metrics   *listen.Endpoint
	peers     *listen.Endpoint // for other brokers
	// peersAddress is where it listens; "" for nowhere.
	peersAddress string
	// sharing are the brokers with which this one shares a file of its configuration; nil for none.
	sharing   *agreement.Group
	forwarder *peer.Forwarder
	placer    *placement.Placer // nil where this broker is alone
	// drained says that the operator has taken this broker out; with a state in a database it
	// is there.
	drained atomic.Bool
	// ending says that it is shutting down.
	ending  atomic.Bool
	backups *statedir.BackupServer
	answers *idempotency.Answers
	heir    *adoption.Heir // nil where the state is in a file
	// previewKey is what the file of that key holds.
	previewKey []byte
	// snapshotSecret is what the file of that holds.
	snapshotSecret []byte

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
	listener, err := options.Sockets.AtStart(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	var metricsListener net.Listener
	if cfg.Metrics.Listen != "" {
		if metricsListener, err = options.Sockets.AtStart(ctx, cfg.Metrics.Listen); err != nil {
			return err
		}
		defer metricsListener.Close()
	}
	doorListeners := map[string]net.Listener{}
	for _, door := range cfg.FrontDoors {
		if door.Listen == "" {
			continue
		}
		own, err := options.Sockets.AtStart(ctx, door.Listen)
		if err != nil {
			return err
		}
		defer own.Close()
		doorListeners[door.Kind] = own
	}
	var peersListener net.Listener
	if cfg.Peers != nil {
		if peersListener, err = options.Sockets.AtStart(ctx, cfg.Peers.Listen); err != nil {
			return err
		}
		defer peersListener.Close()
	}
	if unused := options.Sockets.Unused(); len(unused) > 0 {
		b.logger.Warn("the broker was started with sockets on which nothing in the configuration listens: who connects there waits in vain", "addresses", unused)
	}
	if b.state, err = statedir.Open(ctx, cfg.StateDir); err != nil {
		return err
	}
	defer closing(&err, b.state.Close)
	state, err := b.openState(ctx, cfg)
	if err != nil {
		return err
	}
	defer closing(&err, state.Close)
	defer closing(&err, b.closeBackups)
	cfg, shared, err := b.takeShared(ctx, cfg)
	if err != nil {
		return err
	}
	first = settingsOf(cfg, nil)
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
	snapshots := snapshot.NewStoreJournal(state)
	pastSnapshots, err := snapshots.Load(ctx, b.logger.Named("state"))
	if err != nil {
		return err
	}
	if err = endForsaken(ctx, past.Records, snapshot.Forsaken(pastSnapshots), instances); err != nil {
		return err
	}
	if past.Incomplete, err = statedir.ReportLoss(state, b.logger.Named("state")); err != nil {
		return err
	}
	others := b.openForwarder()
	defer b.forwarder.Close()
	if b.quotas, err = quota.NewKeeper(quota.Options{
		Others:  others,
		Rules:   first.quotas,
		Journal: quota.NewStoreJournal(state, b.logger.Named("quota")),
		Logger:  b.logger.Named("quota"),
	}); err != nil {
		return err
	}
	defer b.quotas.Close()
	if b.database != nil {
		b.database.LimitInstances(b.quotas.MaxInstances)
		if err = b.database.LimitKept(ctx, keptCounter(b.quotas.Limits)); err != nil {
			return err
		}
	}
	if err = b.openAudit(cfg.Audit.Dir, first); err != nil {
		return err
	}
	defer closing(&err, b.closeAudit)
	b.quotas.Follow(ctx, b.audit)
	if b.webhooks, err = webhook.Open(webhook.Options{
		Store: state, Log: b.audit, Logger: b.logger.Named("webhooks"), Rules: b.webhookRules,
		Ended: func(tenant, execution, status string) { b.runs.SetWebhook(tenant, execution, status) },
	}); err != nil {
		return err
	}
	defer b.webhooks.Close()
	if b.runs, err = executions.Open(executions.Options{
		Store: state, Limits: first.runs, Logger: b.logger.Named("executions"), Webhooks: b.webhooks, Report: v1.Report, Others: others,
	}); err != nil {
		return err
	}
	defer b.runs.Close()
	previewKey, snapshotSecret, err := b.loadKeys(ctx)
	if err != nil {
		return err
	}
	calls := metrics.NewCalls()
	b.tracing = tracing.New(b.logger.Named("tracing"), options.Version)
	defer b.tracing.Close()
	b.tracing.Apply(first.tracing)
	if b.launcher, err = options.launcher(calls, b.lease); err != nil {
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
		Catalog: b.catalog, Tenants: b.catalog,
		Limits:  first.instances,
		Logger:  options.Logger.Named("instances"),
		Journal: instances, Past: past, BrokerID: b.state.ID(),
		Quotas: b.quotas, Router: b.catalog.Router, Observer: outcomes, Directory: b.options.Directory, Others: others,
		Holders: b.holders(), Heir: b.newHeir(), Placer: b.placing(), Held: b.held,
	})
	b.answers = answers
	if b.volumes, err = volume.NewService(volume.Options{
		Catalog: b.catalog, Instances: instance.VolumesOf(b.instances), Journal: volume.NewStoreJournal(state), Quotas: b.quotas,
		BrokerID: b.state.ID(), Logger: options.Logger.Named("volumes"), Finder: b.finder(), Others: others,
	}); err != nil {
		return err
	}
	b.quotas.CountVolumes(b.volumes.Held)
	b.host = &generation.Host{
		Catalog: b.catalog, Instances: b.instances, Starter: b.starter, Audit: b.audit,
		Logger: b.logger, Life: b.life, Tasks: b.tasks, Grace: options.DrainGrace,
	}
	b.reloader = reload.New(cfg.Revision, reload.Options{
		Broker: b, Host: b.host, Logger: b.logger, Tasks: b.tasks, Load: options.Load, Signals: options.Reload,
		Listen: options.Sockets.On,
	})
	g := generation.New(cfg, b.host.Supervise(started), nil)
	if b.templates, err = templates.New(templates.Options{
		Pins: templates.NewStorePins(state, b.logger.Named("state")), Logger: b.logger.Named("templates"), Life: b.life, Tasks: b.tasks,
	}); err != nil {
		return err
	}
	b.catalog.Built = b.templates.Find
	b.catalog.Set(g)
	b.followTemplates(g)
	b.instances.ReleaseTenants(g.Has)
	b.snapshots = snapshot.NewService(snapshot.Options{
		Instances: b.instances, Providers: func() []instance.Provider { return instance.Reachable(b.instances) },
		Quotas: b.quotas, Journal: snapshots, Past: pastSnapshots, Limits: first.snapshots,
		Secret: snapshotSecret, BrokerID: b.state.ID(), Logger: options.Logger.Named("snapshots"),
		Known:  func(tenant string) bool { return b.catalog.InForce().Has(tenant) },
		Finder: b.finder(), Others: others,
	})
	defer b.snapshots.Close()
	b.snapshots.ReleaseTenants(g.Has)
	b.volumes.ReleaseTenants(ctx, g.Has)
	b.quotas.Forget(g.Has)
	b.forgetAnswers(g.Has)
	b.runs.Forget(g.Has)
	b.webhooks.Forget(g.Has)
	b.webhooks.Run()
	b.quotas.SetRules(quotaRules(cfg, g.Current))
	if b.database != nil {
		if err = b.quotas.Share(ctx, b.database.Ledger()); err != nil {
			return err
		}
	}
	if err := b.share(ctx, g, shared); err != nil {
		return err
	}
	b.reloader.NoteStart(b.started)
	meter := metrics.New(b.catalog.Metrics, b.configurationMetrics)
	meter.ShowQuotas(b.quotaMetrics)
	meter.ShowAudit(b.auditState)
	meter.ShowOutcomes(outcomes)
	meter.ShowCalls(calls)
	meter.ShowTraces(b.tracing.Counts)
	meter.ShowQueue(func() int { return b.quotas.Totals().Waiting })
	meter.ShowCosts(b.quotas.Spent)
	meter.ShowBuild(options.Version)
	meter.ShowDisks(b.disks)
	meter.ShowInstances(b.instances.CountByProvider)
	meter.ShowSnapshots(b.snapshotCounts)
	meter.ShowVolumes(b.volumeCounts)
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

	recent := history.NewRecorder(func() history.Reading { return b.reading(meter) })
	configurator := admin.NewConfigurator(administration{b})
	var passing rest.Peers // nil where nothing is ever passed on
	if b.options.Directory != nil {
		passing = b.forwarder
	}
	if b.server, err = api.NewServer(api.Options{
		Instances:            b.instances,
		Snapshots:            b.snapshots,
		Volumes:              b.volumes,
		Tenants:              b.catalog,
		Admin:                admin.NewService(b.catalog, administration{b}),
		Logger:               options.Logger.Named("api"),
		Meter:                meter,
		History:              recent,
		AuditArchive:         audit.NewArchive(b.audit),
		Tracer:               b.tracing,
		Bounds:               first.requests,
		TLS:                  first.tls,
		PreviewKey:           previewKey,
		PreviewHosts:         first.previews,
		FrontDoors:           first.doors,
		Version:              options.Version,
		Answers:              answers,
		Configurator:         configurator,
		TenantConfigurator:   configurator,
		TemplateConfigurator: configurator,
		Templates:            b.templates,
		Quotas:               b.quotas,
		Executions:           b.runs,
		Webhooks:             b.webhooks,
		Peers:                passing,
		Questions:            b.answersForPeers(),
		Audit:                b.audit.Err,
		State:                b.stateErr,
		Drain:                b,
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
	b.peers = b.newPeers()
	b.identify(first.peers)
	b.openPeers(peersListener)
	if cfg.Peers != nil {
		b.tellPeers(cfg.Peers)
	}
	b.api.MoveTo(listener)
	if err := b.host.AwaitTried(ctx, g.Current); err != nil {
		return err
	}
	b.inherit()
	b.publish()
	b.tasks.Go("keep the directories in place", func() { b.recreateDirs(b.life) })
	b.tasks.Go("reconcile volumes", func() { b.volumes.Run(b.life) })
	b.tasks.Go("keep the history of the metrics", func() { recent.Run(b.life) })
	if b.database != nil {
		signer := heads.New(heads.Options{Log: b.audit, Store: b.database, Broker: b.state.ID(), Logger: b.logger.Named("audit")})
		b.tasks.Go("sign the audit log", func() { signer.Run(b.life) })
	}
	b.tasks.Go("watch the plugins' files", func() { b.reloader.WatchExecutables(b.life) })
	if options.Load != nil {
		b.tasks.Go("follow the configuration", func() { b.reloader.Follow(b.life) })
	}
	if b.sharing != nil {
		b.tasks.Go("share the configuration", func() { b.sharing.Follow(b.life, b.reloader) })
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
	case err := <-b.peers.Failed():
		return err
	case <-b.lost():
		return errLost
	}
}

// endForsaken has the copies ended of forks that an earlier process did not bring to their end,
// and returns when that is durable: the record of such a fork goes before they do.
func endForsaken(ctx context.Context, records []instance.Record, forsaken func(fork string) bool, journal instance.Journal) error {
	for i := range records {
		if r := &records[i]; r.Fork != "" && forsaken(r.Fork) && !r.Ending {
			r.Ending = true
			if err := journal.Amend(ctx, r.ID, func(kept *instance.Record) { kept.Ending = true }); err != nil {
				return fmt.Errorf("end the copies of a fork that was cut off: %w", err)
			}
		}
	}
	return nil
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
	b.ending.Store(true)
	b.sayNow()
	drain, cancel := context.WithTimeout(context.Background(), b.catalog.InForce().Config.Limits.ShutdownTimeout)
	b.instances.Drain(drain)
	// It is read after the wait, which may be long: the last word counts.
	if b.catalog.InForce().Config.OnStop == config.OnStopKeep {
		b.instances.ShutdownKeeping(drain)
	} else {
		b.instances.Shutdown(drain)
	}
	cancel()
	b.runs.Close()
	b.webhooks.Close()

	if b.api != nil {
		answers, cancel := context.WithTimeout(context.Background(), answerTimeout)
		var group sync.WaitGroup
		for _, door := range b.doors {
			group.Go(func() { door.Close(answers) })
		}
		if b.peers != nil {
			group.Go(func() { b.peers.Close(answers) })
		}
		b.api.Close(answers)
		group.Wait()
		cancel()
	}
	b.snapshots.Close() // before the plugins that it asks
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
	launcher, err := options.launcher(nil, nil)
	if err != nil {
		return sdk.Description{}, nil, err
	}
	defer func() { _ = launcher.Close() }() // a directory left behind is swept at the next start
	starter := launch.Starter{Plugins: launcher, Logger: options.Logger}
	return starter.Inspect(ctx, cfg, block)
}

func (o Options) launcher(calls pluginhost.CallObserver, lease func() string) (*pluginhost.Launcher, error) {
	return pluginhost.NewLauncher(pluginhost.LauncherOptions{
		RuntimeDir: o.RuntimeDir, Logger: o.Logger, Watchdog: o.Watchdog, Adopt: o.Adopt, Calls: calls, Lease: lease,
	})
}
