package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
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
	// Ready is called once, when each provider has been tried and the API
	// listens at that address. A provider may be down all the same.
	Ready func(address net.Addr)
	// MetricsReady is called once, before Ready, with the address of the
	// metrics if the configuration wants them.
	MetricsReady func(address net.Addr)
}

// broker is a daemon that runs.
type broker struct {
	cfg       *config.Config
	options   Options
	logger    hclog.Logger
	state     *stateDir
	launcher  *pluginhost.Launcher
	catalog   *catalog
	instances *instance.Service
	server    *api.Server
	listener  net.Listener
	metrics   *metrics.Metrics
	serving   chan error // what Serve returned, once

	// life ends when the broker stops, once the instances are gone. tasks are
	// what goes on in the background as long.
	life    context.Context
	endLife context.CancelFunc
	tasks   *background.Group
}

// Run is the daemon: it returns when ctx has ended and everything was stopped in
// order, or when it cannot start or go on. The error is config.Diagnostics when
// the configuration is at fault.
func Run(ctx context.Context, cfg *config.Config, options Options) (err error) {
	b := &broker{cfg: cfg, options: options, logger: options.Logger, serving: make(chan error, 1)}
	b.life, b.endLife = context.WithCancel(context.Background())
	defer b.endLife()
	b.tasks = background.NewGroup(b.logger)

	// First of all, so that a taken address is told at once.
	if b.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return cannotListen(cfg.Listen, err)
	}
	defer b.listener.Close()
	var metricsListener net.Listener
	if cfg.Metrics.Listen != "" {
		if metricsListener, err = net.Listen("tcp", cfg.Metrics.Listen); err != nil {
			return cannotListen(cfg.Metrics.Listen, err)
		}
		defer metricsListener.Close()
	}
	if b.state, err = openStateDir(cfg.StateDir); err != nil {
		return err
	}
	defer closing(&err, b.state.close)
	previewKey, err := preview.LoadKey(b.state.previewKey())
	if err != nil {
		return err
	}
	if b.launcher, err = pluginhost.NewLauncher(pluginhost.LauncherOptions{
		PluginDir:  cfg.PluginDir,
		RuntimeDir: options.RuntimeDir,
		Logger:     options.Logger,
	}); err != nil {
		return fmt.Errorf("prepare for plugins: %w", err)
	}
	defer closing(&err, b.launcher.Close)

	started, err := b.launchAll(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	b.catalog = &catalog{active: cfg.ActiveProvider}
	b.metrics = metrics.New(b.catalog.states)
	b.instances = instance.NewService(instance.Options{
		Catalog: b.catalog,
		Limits: instance.Limits{
			Output:         cfg.Limits.Output,
			DefaultTimeout: cfg.Limits.DefaultTimeout,
			MaxTimeout:     cfg.Limits.MaxTimeout,
			CreateTimeout:  cfg.Limits.CreateTimeout,
			DefaultTTL:     cfg.Limits.DefaultTTL,
			MaxLifetime:    cfg.Limits.MaxLifetime,
			MaxIdle:        cfg.Limits.MaxIdle,
		},
		Logger: options.Logger.Named("instances"),
	})
	b.supervise(started)
	if metricsListener != nil {
		// It serves to the end: a stop is worth looking at too.
		defer b.serveMetrics(metricsListener)()
	}
	defer b.stop()

	if b.server, err = api.NewServer(api.Options{
		Instances:      b.instances,
		Tenants:        tenants(cfg),
		Logger:         options.Logger.Named("api"),
		Meter:          b.metrics,
		MaxBody:        cfg.Limits.RequestBody,
		PreviewKey:     previewKey,
		RequestTimeout: 2*cfg.Limits.MaxTimeout + 2*cfg.Limits.CreateTimeout + time.Minute,
	}); err != nil {
		return err
	}
	go func() { b.serving <- b.server.Serve(b.listener) }()
	if err := b.awaitProviders(ctx); err != nil {
		return err
	}
	b.tasks.Go("watch the plugins' files", func() { b.watchExecutables(b.life) })
	if options.Ready != nil && ctx.Err() == nil {
		options.Ready(b.listener.Addr())
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-b.serving:
		b.serving <- err // stop waits for it
		if err == nil {
			err = errors.New("the listener was closed")
		}
		return fmt.Errorf("serve: %w", err)
	}
}

func cannotListen(address string, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("another program listens on %s already; stop it, or choose another address (listen = ...)", address)
	}
	return fmt.Errorf("cannot listen on %s: %w", address, err)
}

// closing adds the error of a close to *err, which stays as it is if there is
// none.
func closing(err *error, closer func() error) {
	if closeErr := closer(); closeErr != nil {
		*err = errors.Join(*err, closeErr)
	}
}

// stop ends everything in the order that loses nothing: no new work, running
// executions finish within the bound, instances are destroyed, the last answers
// leave, plugins end.
func (b *broker) stop() {
	b.logger.Info("stopping")
	drain, cancel := context.WithTimeout(context.Background(), b.cfg.Limits.ShutdownTimeout)
	b.instances.Shutdown(drain)
	cancel()

	if b.server != nil {
		answers, cancel := context.WithTimeout(context.Background(), answerTimeout)
		if err := b.server.Shutdown(answers); err != nil {
			b.logger.Warn("stop the API", "error", err)
		}
		cancel()
		_ = b.listener.Close() // for a server that had not begun to serve
		if err := <-b.serving; err != nil {
			b.logger.Warn("stop the API", "error", err)
		}
	}
	b.endLife()
	b.tasks.Wait() // an upgrade that is under way shall not add a plugin
	plugins, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	b.catalog.stop(plugins)
	b.logger.Info("stopped")
}

// serveMetrics serves the metrics until what it returns is called.
func (b *broker) serveMetrics(listener net.Listener) (stop func()) {
	server := b.metrics.Serve(listener)
	b.logger.Info("metrics", "address", listener.Addr().String(), "path", metrics.Path)
	if b.options.MetricsReady != nil {
		b.options.MetricsReady(listener.Addr())
	}
	return func() {
		answers, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		if err := server.Shutdown(answers); err != nil {
			b.logger.Warn("stop the metrics", "error", err)
		}
	}
}

func tenants(cfg *config.Config) *tenant.Directory {
	var all []tenant.Credentials
	for _, t := range cfg.Tenants {
		all = append(all, tenant.Credentials{
			Tenant:      tenant.Tenant{Name: t.Name, Providers: t.Providers},
			TokenSHA256: t.TokenSHA256,
		})
	}
	return tenant.NewDirectory(all)
}
