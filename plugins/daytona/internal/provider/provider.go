// Package provider is the sandbox provider for Daytona, hosted or on machines of your own.
//
// Executions, commands, files and contexts are those of the kit for remote sandboxes
// (plugins/internal/remote), which needs a shell and an upload: both are the toolbox's.
// Here is what is Daytona's: create.go has how sandboxes come and go, sandbox.go how they
// are found, paused and used, settings.go what an operator can say, and failures.go which
// error of Daytona's is which of the broker's.
package provider

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/api"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/records"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/apimeter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/cells"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// Provider makes sandboxes at Daytona.
type Provider struct {
	guestfiles.Calls  // sdk.Files
	remote.Executions // sdk.Interrupter
	*place.Commands   // sdk.Commands
	*cells.Contexts   // sdk.Contexts
	place.Packages    // sdk.PackageInstaller

	logger hclog.Logger

	// What Configure sets.
	settings  settings
	brokerID  string
	label     string
	owner     string // of the names of this broker's sandboxes
	secrets   *redact.Redactor
	retry     retry.Policy
	api       *api.Client
	transport *http.Transport
	requests  apimeter.Meter
	records   *records.Store[record]

	// life ends with Close; background are the goroutines that end then.
	life       context.Context //nolint:containedctx // the lifetime of those goroutines
	end        context.CancelFunc
	background sync.WaitGroup

	// changing is for who changes the state of a sandbox, by its ID, and settingUp for who
	// finds out its workspace, which may wake it.
	changing, settingUp keylock.Locks[string]

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

var (
	_ sdk.Provider          = (*Provider)(nil)
	_ sdk.SettingsValidator = (*Provider)(nil)
	_ sdk.Closer            = (*Provider)(nil)
)

// New is the serve.Factory.
func New(logger hclog.Logger) sdk.Provider {
	life, end := context.WithCancel(context.Background())
	p := &Provider{logger: logger, life: life, end: end, sandboxes: map[string]*sandbox{}}
	p.Commands = place.NewCommands(service{p}, logger)
	p.Contexts = cells.New(service{p}, logger)
	p.Packages = place.NewPackages(service{p}, logger, func() bool { return p.settings.Packages })
	p.Calls = guestfiles.NewCalls(p.store(), guestfiles.Options{MostListed: maxListed, ReadAtOnce: readAtOnce, Left: func(instanceID string, err error) {
		logger.Warn("half a file may be left in a sandbox", "sandbox", instanceID, "error", p.secrets.Error(err))
	}})
	return p
}

// Describe implements sdk.Provider.
func (p *Provider) Describe() sdk.Description {
	return sdk.Description{
		Name:         "daytona",
		Version:      "0.1.0",
		Summary:      "Sandboxes of Daytona, hosted or on machines of your own.",
		Icon:         "cloud",
		Tags:         []string{"cloud"},
		Languages:    []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash},
		Templates:    templates(),
		Schema:       schema(),
		Capabilities: []sdk.Capability{sdk.CapabilityArtifacts},
	}
}

// templates have the names of the self-managed provider's, so that one can stand in for the
// other. All are the same kind of sandbox.
func templates() []sdk.Template {
	return []sdk.Template{
		{Name: "python", Description: "For Python.", Languages: []sdk.Language{sdk.Python}},
		{Name: "nodejs", Description: "For JavaScript.", Languages: []sdk.Language{sdk.JavaScript}},
		{Name: "bash", Description: "For Bash.", Languages: []sdk.Language{sdk.Bash}},
	}
}

// Configure implements sdk.Provider. It shows whether the key is good, and finds what a
// process before this one has left.
func (p *Provider) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	if err := sdk.InvalidSettings(p.Validate(ctx, req.Settings)); err != nil {
		return err
	}
	if err := req.Settings.Decode(&p.settings); err != nil {
		return err
	}
	p.brokerID, p.label, p.owner = req.BrokerID, req.Label, ownerOf(req.BrokerID, req.Label)
	p.secrets = redact.New(redact.Secrets(schema(), req.Settings)...)
	p.retry = retry.Policy{Attempts: int(p.settings.MaxRetries) + 1}
	p.transport = http.DefaultTransport.(*http.Transport).Clone()
	p.transport.MaxIdleConnsPerHost = 32
	// All calls may share one connection, whose silence must not be theirs for long.
	p.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	calls := &http.Client{Transport: fence.Transport{Next: p.requests.Watch("control", p.transport)}, CheckRedirect: noRedirect}
	toolbox := &http.Client{Transport: p.requests.Watch("sandbox", p.transport), CheckRedirect: noRedirect}
	p.api = &api.Client{
		URL: trimmed(p.settings.APIURL), Key: p.settings.APIKey, Organization: p.settings.OrganizationID, Calls: calls, Toolbox: toolbox,
	}
	var err error
	if p.records, err = records.Open[record]("instances", req.StateDir, req.AbandonedDirs); err != nil {
		return err
	}
	if _, err := again(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.api.CheckKey(ctx) }); err != nil {
		return p.blame(err, p.explain(ctx, err, sdk.CodeConnectionFailed, "check the key"))
	}
	found, err := p.List(ctx)
	if err != nil {
		return err
	}
	p.forgetAllBut(found)
	p.background.Go(p.keepAlive)
	return nil
}

// Health implements sdk.Provider.
func (p *Provider) Health(ctx context.Context) (sdk.Health, error) {
	health := sdk.Health{Details: map[string]string{"api": p.settings.APIURL}, Metrics: p.requests.Metrics()}
	if err := p.api.CheckKey(ctx); err != nil {
		health.Reason = p.explain(ctx, err, sdk.CodeUnavailable, "check the key").Error()
		return health, nil
	}
	health.Healthy = true
	return health, nil
}

// Close implements sdk.Closer. Sandboxes stay for the next process, as long as auto_stop is.
func (p *Provider) Close(context.Context) error {
	p.end()
	p.background.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sb := range p.sandboxes {
		sb.end()
	}
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
	return nil
}

const (
	// parallelRenewals is how many sandboxes are kept alive at once.
	parallelRenewals = 8
	// maxListed bounds what a list of files looks at.
	maxListed = 10_000
	// readAtOnce is how much of a file comes with its description, in bytes.
	readAtOnce = 256 << 10
)

// keepAlive renews the sandboxes that are to live longer: Daytona counts no work as a reason
// to let one go on.
func (p *Provider) keepAlive() {
	ticker := time.NewTicker(p.settings.AutoStop / 6)
	defer ticker.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-ticker.C:
		}
		var renewing errgroup.Group
		renewing.SetLimit(parallelRenewals)
		for _, sb := range p.due(time.Now()) {
			renewing.Go(func() error { sb.keepAlive(p.life); return nil })
		}
		_ = renewing.Wait() // they say what failed
	}
}

// due are the sandboxes that would be stopped before long, and should not.
func (p *Provider) due(now time.Time) []*sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []*sandbox
	for _, sb := range p.sandboxes {
		one, _ := p.records.Get(sb.ID)
		if !one.Paused && (sb.deadline.IsZero() || now.Before(sb.deadline)) && sb.idle(now) >= p.settings.AutoStop/3 {
			due = append(due, sb)
		}
	}
	return due
}

// again repeats a call that can be repeated.
func again[T any](ctx context.Context, p *Provider, call func(context.Context) (T, error)) (T, error) {
	return remote.Again(ctx, p.retry, worth, call)
}
