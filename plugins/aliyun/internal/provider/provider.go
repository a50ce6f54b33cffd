// Package provider is the provider of Aliyun AgentRun: it keeps the contract of
// package sdk with the sandboxes of that service.
//
// provider.go has what the broker asks first, settings.go what an operator can say,
// instances.go how sandboxes come and go, execute.go how code runs in them, and
// failures.go what the broker is told when the service fails. How the service is
// spoken to is the business of package agentrun.
package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/data"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/records"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/apimeter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// Provider runs code in sandboxes of Aliyun AgentRun.
type Provider struct {
	guestfiles.Calls  // sdk.Files
	remote.Executions // sdk.Interrupter
	*place.Commands   // sdk.Commands
	*contexts.Book[place.Box, *codeContext]

	log hclog.Logger

	// What Configure sets.
	settings  settings
	secrets   *redact.Redactor
	transport *http.Transport
	requests  apimeter.Meter
	control   controlPlane
	data      dataPlane
	records   *records.Store[record]
	// owner begins the IDs of all sandboxes of this broker and provider block.
	brokerID, label, owner string
	adopted                adopted
	template               *template

	// changing is for who makes or ends kernels, by the ID of the sandbox or the context, and
	// settingUp for who finds out where code works in a sandbox.
	changing, settingUp keylock.Locks[string]
	leases              leases
	// end ends what runs beside the calls, and background is that.
	end        context.CancelFunc
	background sync.WaitGroup
}

// controlPlane is what the provider needs of it.
type controlPlane interface {
	Ping(ctx context.Context) error
	GetTemplate(ctx context.Context, name string) (agentrun.Template, error)
	CreateTemplate(ctx context.Context, in agentrun.TemplateInput) (agentrun.Template, error)
	ListSandboxes(ctx context.Context, token string) (agentrun.SandboxPage, error)
	PauseSandbox(ctx context.Context, id string) error
	ResumeSandbox(ctx context.Context, id string) error
}

// dataPlane is what the provider needs of it.
type dataPlane interface {
	CreateSandbox(ctx context.Context, in agentrun.SandboxInput) (agentrun.Sandbox, error)
	GetSandbox(ctx context.Context, id string) (agentrun.Sandbox, error)
	DeleteSandbox(ctx context.Context, id string) error
	Ready(ctx context.Context, id string) (bool, error)
	RunCommand(ctx context.Context, id, command, cwd string, timeout time.Duration) (agentrun.CommandResult, error)
	Upload(ctx context.Context, id, file string, content []byte) error
	Download(ctx context.Context, id, file string) (io.ReadCloser, error)
	CreateContext(ctx context.Context, id, language, cwd string) (agentrun.Context, error)
	ListContexts(ctx context.Context, id string) ([]agentrun.Context, error)
	DeleteContext(ctx context.Context, id, contextID string) error
	ExecuteCode(ctx context.Context, id, contextID, code string, timeout time.Duration) (agentrun.CodeResult, error)
}

var (
	_ sdk.Provider          = (*Provider)(nil)
	_ sdk.SettingsValidator = (*Provider)(nil)
	_ sdk.Closer            = (*Provider)(nil)
	_ controlPlane          = (*control.Client)(nil)
	_ dataPlane             = (*data.Client)(nil)
)

// New makes a provider; Configure connects it.
func New(log hclog.Logger) sdk.Provider {
	p := &Provider{
		log:     log,
		adopted: adopted{from: map[string]bool{}, released: map[string]bool{}},
		leases:  leases{used: map[string]time.Time{}, ended: map[string]bool{}},
	}
	p.Book = contexts.NewBook(service{p})
	p.Commands = place.NewCommands(service{p}, log)
	p.Calls = guestfiles.NewCalls(p.store(), guestfiles.Options{MostListed: maxListed, ReadAtOnce: readAtOnce, Left: func(instanceID string, err error) {
		p.log.Warn("half a file may be left in a sandbox", "sandbox", instanceID, "error", p.secrets.Error(err))
	}})
	return p
}

// Describe implements sdk.Provider.
func (p *Provider) Describe() sdk.Description {
	return sdk.Description{
		Name:      "aliyun",
		Version:   "0.1.0",
		Summary:   "Sandboxes of Aliyun AgentRun, type Code Interpreter.",
		Languages: []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash},
		Templates: []sdk.Template{
			{Name: "python", Description: "Python, with the packages that the service has", Languages: []sdk.Language{sdk.Python}},
			{Name: "nodejs", Description: "Node.js, in the same kind of sandbox", Languages: []sdk.Language{sdk.JavaScript}},
			{Name: "bash", Description: "bash, in the same kind of sandbox", Languages: []sdk.Language{sdk.Bash}},
		},
		Schema:       schema(),
		Capabilities: []sdk.Capability{sdk.CapabilityArtifacts},
	}
}

// Configure implements sdk.Provider. It checks the credentials with one call to each
// plane, and a template that was named with another; nothing is made yet.
func (p *Provider) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	if err := sdk.InvalidSettings(p.Validate(ctx, req.Settings)); err != nil {
		return err
	}
	if err := req.Settings.Decode(&p.settings); err != nil {
		return err
	}
	p.secrets = redact.New(redact.Secrets(schema(), req.Settings)...)
	controlURL, dataURL, err := p.settings.endpoints()
	if err != nil {
		return err
	}
	keys, err := control.NewCredentials(p.settings.source())
	if err != nil {
		return p.secrets.Error(sdk.FieldErrorf(sdk.CodeInvalidConfig, "identity", "%w", err))
	}
	p.transport = http.DefaultTransport.(*http.Transport).Clone()
	p.transport.MaxIdleConnsPerHost = 32
	// All calls may share one connection, whose silence must not be theirs for long.
	p.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	p.control = control.New(controlURL, p.settings.Region, keys, fence.Transport{Next: p.requests.Watch("control", p.transport)})
	watched := p.requests.Watch("sandbox", p.transport)
	p.data = inside{fenced{
		dataPlane: data.New(dataURL, p.settings.Region, keys, watched),
		outside:   data.New(dataURL, p.settings.Region, keys, fence.Transport{Next: watched}),
	}, &p.leases}
	p.brokerID, p.label, p.owner = req.BrokerID, req.Label, ownerOf(req.BrokerID, req.Label)
	if p.records, err = records.Open[record]("instances", req.StateDir, req.AbandonedDirs); err != nil {
		return err
	}
	if err := p.control.Ping(ctx); err != nil {
		return p.blame(err, p.explain(ctx, err, sdk.CodeConnectionFailed, "ask the control plane"))
	}
	// The data plane has rights of its own, and the account in its address: nothing else
	// would show before the first sandbox. There is none of this name.
	if _, err := p.data.GetSandbox(ctx, p.nameOf("", 0)); err != nil && !isMissing(err) {
		return p.blame(err, p.explain(ctx, err, sdk.CodeConnectionFailed, "ask the data plane"))
	}
	p.template = newTemplate(p.settings, p.control)
	if p.settings.TemplateName != "" {
		err := p.template.check(ctx)
		if isMissing(err) {
			return sdk.FieldErrorf(sdk.CodeInvalidConfig, "template_name", "no template of this name is in %s", p.settings.Region)
		}
		if err != nil {
			return p.explain(ctx, err, sdk.CodeConnectionFailed, "look for the template")
		}
	}
	var life context.Context
	life, p.end = context.WithCancel(context.WithoutCancel(ctx))
	p.background.Go(func() { p.keepAlive(life) })
	return nil
}

// Health implements sdk.Provider.
func (p *Provider) Health(ctx context.Context) (sdk.Health, error) {
	details := map[string]string{"region": p.settings.Region}
	if err := p.control.Ping(ctx); err != nil {
		err = p.explain(ctx, err, sdk.CodeUnavailable, "ask the control plane")
		if e, ok := errors.AsType[*sdk.Error](err); ok {
			return sdk.Health{Reason: e.Message, Details: details, Metrics: p.requests.Metrics()}, nil
		}
		return sdk.Health{}, err
	}
	return sdk.Health{Healthy: true, Details: details, Metrics: p.requests.Metrics()}, nil
}

// Close implements sdk.Closer. Sandboxes stay: the next process finds them.
func (p *Provider) Close(context.Context) error {
	if p.end != nil {
		p.end()
		p.background.Wait()
	}
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
	return nil
}

// store is where the files of the sandboxes are.
func (p *Provider) store() store { return store{place.Store{Service: service{p}}, p} }

// again repeats a call that can be repeated.
func again[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	return remote.Again(ctx, retry.Policy{}, worth, call)
}
