// Package provider is the self-managed provider: sandboxes on this machine, from
// a warm pool.
//
// It joins the parts and speaks the SDK; making sandboxes is the work of a runtime
// (runsc or docker), keeping them ready the pool's, running code the guest's.
//
// Provider has the methods of the SDK, and they say little: instances.go knows which
// instances there are, instance.go what one does, sandbox.go and
// images.go how its sandbox was made. What a guest serves by itself is guestcalls.Calls, and how
// packages get into it is guestpackages.
package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/egress"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/hostusage"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

// Templates of the provider.
const (
	templatePython = "python"
	templateNode   = "nodejs"
	templateBash   = "bash"
)

// makeTimeout bounds the making of one sandbox. It takes about 0.1 s, and much
// more on a machine under load.
const makeTimeout = 30 * time.Second

// firstTryTimeout is how long the start waits for the first sandbox.
const firstTryTimeout = 10 * time.Second

// A ready sandbox is asked once a minute whether it is well. That takes plugin
// and sandbox 1.5 ms of CPU each: 200 of them 1 % of a CPU. On a machine under load the answer may take long, and
// that alone is no reason to make more load.
const (
	checkInterval = time.Minute
	checkTimeout  = 10 * time.Second
)

// leastMaxAge keeps a pool from being busy with nothing but replacing itself.
const leastMaxAge = time.Minute

// Provider implements sdk.Provider.
type Provider struct {
	*guestcalls.Calls // sdk.Files, sdk.Commands, sdk.Contexts, sdk.Ports

	logger hclog.Logger

	configured atomic.Bool
	stateDir   string
	settings   settings
	runtime    sandboxRuntime
	sandboxes  *maker
	pool       *pool.Pool[*sandbox]
	instances  *instances
	packages   *guestpackages.Sources
	templates  *templates
	layers     *packageLayers
	gateway    *gateway.Gateway
	snapshots  *snapshots // nil where there can be none
	asides     *asides    // nil where paused instances are frozen
	volumes    volumeStore
	// builds are usualBuildBounds but for tests.
	builds buildBounds
	// The way to hosts of packages and of networks, but for tests.
	resolver egress.Resolver
	dialer   egress.Dialer

	// interruptGrace is sdk.InterruptGrace but for tests, which a slow machine must
	// not fail.
	interruptGrace time.Duration
}

var (
	_ sdk.Provider = (*Provider)(nil)
	_ sdk.Closer   = (*Provider)(nil)

	_ sdk.SettingsValidator = (*Provider)(nil)
)

// New is the serve.Factory of this provider.
func New(logger hclog.Logger) sdk.Provider {
	all := newInstances(logger)
	return &Provider{
		Calls: guestcalls.New(all), logger: logger, instances: all,
		interruptGrace: sdk.InterruptGrace, builds: usualBuildBounds,
	}
}

// Describe implements sdk.Provider.
func (p *Provider) Describe() sdk.Description {
	return sdk.Description{
		Name:         "self_managed",
		Version:      "0.1.0",
		Summary:      "gVisor sandboxes on this machine, kept ready in a pool.",
		Icon:         "server",
		Tags:         []string{"self-hosted", "gvisor"},
		Languages:    []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash},
		Capabilities: []sdk.Capability{sdk.CapabilityArtifacts},
		Templates: []sdk.Template{
			{Name: templatePython, Description: "Python 3, started ahead", Languages: []sdk.Language{sdk.Python}},
			{Name: templateNode, Description: "Node.js, started ahead", Languages: []sdk.Language{sdk.JavaScript}},
			{Name: templateBash, Description: "bash", Languages: []sdk.Language{sdk.Bash}},
		},
		Schema:    schema(),
		Ephemeral: true,
	}
}

// Configure implements sdk.Provider.
func (p *Provider) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	if err := sdk.InvalidSettings(p.Validate(ctx, req.Settings)); err != nil {
		return err
	}
	if err := req.Settings.Decode(&p.settings); err != nil {
		return err
	}
	p.stateDir = req.StateDir
	layers, everywhere, err := p.settings.openPackageLayers(req, p.logger)
	if err != nil {
		return err
	}
	p.layers = layers
	runtime, found, err := p.settings.setUpRuntime(ctx, req, everywhere, p.logger)
	if err != nil {
		return err
	}
	p.runtime = runtime
	if err := p.openPackages(ctx, found); err != nil {
		return errors.Join(err, runtime.Close())
	}
	if p.snapshots, err = newSnapshots(runtime, req, found, p.logger); err != nil {
		return errors.Join(err, p.packages.Close(), runtime.Close())
	}
	p.gateway = gateway.New(gateway.Options{Resolver: p.resolver, Dialer: p.dialer})
	if p.volumes, err = openVolumes(p, req); err != nil {
		return errors.Join(err, p.snapshots.close(), p.packages.Close(), runtime.Close())
	}
	if p.sandboxes, err = newMaker(p.settings, runtime, found, p.logger); err != nil {
		p.volumes.close()
		return errors.Join(err, p.snapshots.close(), p.packages.Close(), runtime.Close())
	}
	p.sandboxes.packages = p.packages.Installable(sdk.Python) == nil
	if err := p.openTemplates(ctx, req); err != nil {
		p.volumes.close()
		return errors.Join(err, p.snapshots.close(), p.packages.Close(), runtime.Close())
	}
	p.pool = pool.New(pool.Options[*sandbox]{
		Make: p.sandboxes.make, Templates: p.sandboxes.shares(),
		Check:         func(ctx context.Context, s *sandbox) error { return s.guest.Check(ctx) },
		CheckInterval: checkInterval, CheckTimeout: checkTimeout,
		MaxAge: p.settings.MaxAge, KeepFor: keepFor,
		Size: int(p.settings.PoolSize), Max: int(p.settings.MaxSandboxes),
		MakeTimeout: makeTimeout, Logger: p.logger,
	})
	p.instances.from, p.instances.reuse = p.pool, p.settings.reuse()
	if p.asides, err = openAsides(p, req); err != nil {
		return errors.Join(err, p.free())
	}
	p.startPackageLayers()
	if err := p.firstTry(ctx); err != nil {
		return errors.Join(err, p.free())
	}
	p.configured.Store(true)
	return nil
}

// firstTry waits for the first sandbox, and refuses to start where none can be
// made until somebody does something about it. What may pass by itself is for the
// pool to try again, and for Health to tell.
func (p *Provider) firstTry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstTryTimeout)
	defer cancel()
	err := p.pool.FirstTry(ctx)
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeCreateFailed {
		return sdk.Errorf(sdk.CodeInvalidConfig, "%s", e.Message)
	}
	return nil
}

func languageOf(template string) sdk.Language {
	switch template {
	case templatePython:
		return sdk.Python
	case templateNode:
		return sdk.JavaScript
	case templateBash:
		return sdk.Bash
	default:
		return ""
	}
}

func findGuest(named string) (string, error) {
	candidates := []string{named}
	if named == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the plugin's own directory: %w", err)
		}
		dir := filepath.Dir(self)
		candidates = []string{filepath.Join(dir, "sandbox-guest"), filepath.Join(filepath.Dir(dir), "sandbox-guest")}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("there is no executable sandbox-guest at %s: install it there, or name it with the setting guest", strings.Join(candidates, " or "))
}

// Health implements sdk.Provider.
func (p *Provider) Health(ctx context.Context) (sdk.Health, error) {
	if !p.configured.Load() {
		return sdk.Health{Reason: "not configured"}, nil
	}
	stats := p.pool.Stats()
	h := sdk.Health{Healthy: true, Details: stats.Details(p.settings.PoolSize, p.settings.MaxSandboxes), Metrics: pool.Metrics(stats)}
	h.Details[p.settings.Runtime] = p.runtime.Version()
	for template, n := range stats.Ready {
		h.Details["ready_"+template] = fmt.Sprint(n)
	}
	if weak := p.runtime.Weakness(); weak != "" {
		h.Details["weaker"] = weak
	}
	host, err := hostusage.Metrics(p.stateDir)
	if err != nil {
		p.logger.Debug("the machine does not tell all of what is in use", "error", err)
	}
	missing := p.runtime.Check(ctx)
	h.Metrics = append(append(append(h.Metrics, host...), runtimeMetric(missing == nil)), p.gateway.Metrics()...)
	h.Metrics = append(h.Metrics, p.asides.metrics()...)
	switch {
	case sdk.CodeOf(missing) == sdk.CodeInvalidConfig:
		h.Healthy, h.Reason = false, missing.Error()
		if e, ok := errors.AsType[*sdk.Error](missing); ok {
			h.Reason = e.Message
		}
	case missing != nil:
		// The details name paths of the host, and tenants see the reason.
		p.logger.Warn("sandboxes cannot be made", "error", missing)
		h.Healthy, h.Reason = false, "the runtime "+p.settings.Runtime+" does not answer; the log of the broker says why"
	case stats.Failures > 0 && stats.Made == 0 || stats.Failures >= 3:
		h.Healthy, h.Reason = false, fmt.Sprintf("sandboxes cannot be made, %d failures in a row: %s", stats.Failures, pool.Reason(stats.Failure))
	}
	return h, nil
}

// runtimeMetric says whether the runtime answers.
func runtimeMetric(well bool) sdk.Metric {
	m := sdk.Metric{Name: "runtime_healthy", Help: "Whether what makes the sandboxes, gVisor's runsc or Docker, answers as it should.", Kind: sdk.MetricGauge}
	if well {
		m.Value = 1
	}
	return m
}

// Drain implements sdk.Drainer: nobody will need what the pool has ready.
func (p *Provider) Drain(context.Context) error {
	if p.configured.Load() {
		p.pool.Drain()
	}
	return nil
}

// Close implements sdk.Closer.
func (p *Provider) Close(ctx context.Context) error {
	if !p.configured.Swap(false) {
		return nil
	}
	return errors.Join(p.instances.close(ctx), p.free())
}

// free ends what Configure began. No instance is left.
func (p *Provider) free() error {
	p.layers.close()
	p.pool.Close()
	p.templates.close()
	p.sandboxes.close()
	p.volumes.close()
	return errors.Join(p.packages.Close(), p.asides.close(), p.snapshots.close(), p.runtime.Close())
}
