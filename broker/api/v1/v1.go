package v1

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Instances does what the routes promise; instance.Service is it.
type Instances interface {
	Create(ctx context.Context, who tenant.Tenant, req instance.CreateRequest) (instance.Info, bool, error)
	Get(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	List(who tenant.Tenant, req instance.ListRequest) instance.Page
	ListEverywhere(ctx context.Context, who tenant.Tenant, req instance.ListRequest) (instance.Page, error)
	Settled(ctx context.Context, who tenant.Tenant, session, frontDoor string) (unknown []instance.Info)
	SessionElsewhere(ctx context.Context, who tenant.Tenant, session string) error
	Renew(ctx context.Context, who tenant.Tenant, id string, ttl time.Duration) (instance.Info, error)
	SetNetwork(ctx context.Context, who tenant.Tenant, id string, asked network.Request) (instance.Info, error)
	Pause(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	Resume(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	Lease(ctx context.Context, who tenant.Tenant, id string, capability sdk.Capability) (*instance.Lease, error)
	Destroy(ctx context.Context, who tenant.Tenant, id string) error
	Execute(ctx context.Context, who tenant.Tenant, id string, req instance.ExecuteRequest) (instance.Execution, error)
	Install(ctx context.Context, who tenant.Tenant, id string, req instance.InstallRequest) (instance.Execution, error)
	Interrupt(ctx context.Context, who tenant.Tenant, instanceID, executionID string) error
	Run(ctx context.Context, who tenant.Tenant, req instance.RunRequest) (instance.Execution, error)
	Providers(who tenant.Tenant) []instance.ProviderInfo
	ListAll(owner string, req instance.ListRequest) instance.Page
	ListAllEverywhere(ctx context.Context, owner string, req instance.ListRequest) (instance.Page, error)
	Inspect(ctx context.Context, id string) (instance.Info, error)
	Kill(ctx context.Context, id string) error
	Measure(ctx context.Context, id string) (sdk.InstanceMetrics, error)
	DefaultProviders() []instance.ProviderInfo
	Awaited() (instance.Awaited, bool)
	CountByState() map[string]int
	Draining() bool
}

// Quotas say what a tenant has used; quota.Keeper is it.
type Quotas interface {
	UsageEverywhere(ctx context.Context, tenant string) (quota.Usage, error)
	AllEverywhere(ctx context.Context) ([]quota.Usage, error)
}

// Webhooks know where results may go; *webhook.Deliverer is it.
type Webhooks interface {
	Check(tenant, url string) error
}

// Options of the API.
type Options struct {
	Instances Instances
	Snapshots Snapshots
	// Providers, Configurator and TenantConfigurator are for administrators; they may
	// be nil where there are none.
	Providers          Providers
	Configurator       Configurator
	TenantConfigurator TenantConfigurator
	// TemplateConfigurator is as these. Templates may be nil: then there are none.
	TemplateConfigurator TemplateConfigurator
	Templates            Templates
	// Volumes may be nil where nobody asks for one.
	Volumes Volumes
	// Quotas may be nil: then there are none.
	Quotas Quotas
	// Executions may be nil: then none is remembered, and none can be detached.
	Executions *executions.Keeper
	// Webhooks may be nil: then there are none.
	Webhooks Webhooks
	// History may be nil: then nothing is known.
	History History
	// AuditArchive may be nil: then there is no audit log to look into.
	AuditArchive AuditArchive
	// Audit, if not nil, says why nothing can be taken down at this moment, so that
	// nothing is done.
	Audit func() error
	// State, if not nil, says why no state can be kept at this moment.
	State func() error
	// Drain is for administrators, and may be nil where there are none.
	Drain Drain
	// PreviewKey signs preview links; preview.LoadKey keeps it. Empty for a
	// random one: no link outlives the server then.
	PreviewKey []byte
	// PreviewHosts holds nil where previews have paths only.
	PreviewHosts *atomic.Pointer[PreviewHosts]
}

const (
	tagExecute   = "execute"
	tagInstances = "instances"
	tagContexts  = "contexts"
	tagCommands  = "commands"
	tagFiles     = "files"
	tagPorts     = "ports"
	tagSnapshots = "snapshots"
	tagVolumes   = "volumes"
	tagProviders = "providers"
	tagUsage     = "usage"
	tagAdmin     = "admin"
	tagBroker    = "broker"
	// TagPages is of what is for people with a browser.
	TagPages = "pages"
)

// Add adds the API to a server.
func Add(server *rest.Server, opts Options) (*rest.API, error) {
	if len(opts.PreviewKey) == 0 {
		opts.PreviewKey = preview.NewKey()
	}
	previews, err := preview.NewSigner(opts.PreviewKey)
	if err != nil {
		return nil, err
	}
	a := server.NewAPI(rest.APIOptions{Problem: problem, Document: rest.About{
		Title:       "Sandbox broker",
		Version:     "1",
		Description: "Runs code in sandboxes of many providers behind one API.\n\n" + rest.CodesAsText(),
		Tags: []rest.Tag{
			{Name: tagExecute, Description: "Run code."},
			{Name: tagInstances, Description: "Sandboxes that live longer than one execution."},
			{Name: tagContexts, Description: "Interpreters in an instance that keep their state between executions."},
			{Name: tagCommands, Description: "Programs in an instance, which may outlive the request that started them."},
			{Name: tagFiles, Description: "The files of an instance."},
			{Name: tagPorts, Description: "Servers that run in an instance."},
			{Name: tagSnapshots, Description: "Instances as they were at a moment, and others that go on from there."},
			{Name: tagVolumes, Description: "Files that outlive instances, and that several may have."},
			{Name: tagProviders, Description: "What can run here."},
			{Name: tagAdmin, Description: "For administrators, whose tokens are not those of tenants."},
			{Name: tagBroker, Description: "The broker itself."},
			{Name: TagPages, Description: "For people with a browser."},
		},
		Parameters: map[string]string{
			"id":        "An instance's ID.",
			"context":   "A context's ID.",
			"command":   "A command's ID.",
			"execution": "An execution's ID.",
			"snapshot":  "A snapshot's ID.",
			"label":     "A provider's label in the configuration.",
			"name":      "A tenant's name, or a template's; of a page, that of the file or view.",
			"port":      "A TCP port in the instance.",
			"path":      "Any path of the program's, slashes included.",
			"volume":    "A volume's name; for administrators its ID.",
			"token":     "What a preview link was made with.",
		},
		Problem: reflect.TypeFor[client.Problem](),
		Schemas: map[reflect.Type]reflect.Type{
			reflect.TypeFor[client.JSONObject]():    reflect.TypeFor[jsonObject](),
			reflect.TypeFor[client.Execution]():     reflect.TypeFor[Execution](),
			reflect.TypeFor[client.ExecutionInfo](): reflect.TypeFor[executionInfo](),
			reflect.TypeFor[client.AdminSettings](): reflect.TypeFor[adminSettings](),
		},
	}})
	executionRoutes{opts.Instances, opts.Executions, opts.Webhooks}.register(a)
	rememberedRoutes{opts.Instances, opts.Executions}.register(a)
	instanceRoutes{opts.Instances, opts.Snapshots, opts.Volumes}.register(a)
	contextRoutes{opts.Instances}.register(a)
	commandRoutes{opts.Instances}.register(a)
	fileRoutes{opts.Instances, filesOfInstance}.register(a)
	volumeRoutes{opts.Volumes}.register(a)
	fileRoutes{opts.Volumes, filesOfVolume}.register(a)
	portRoutes{instances: opts.Instances, previews: previews, hosts: opts.PreviewHosts, labels: &labelCache{}}.register(a)
	snapshotRoutes{opts.Snapshots}.register(a)
	brokerRoutes{opts}.register(a)
	adminRoutes{opts.Providers, opts.Instances}.register(a)
	drainRoutes{opts.Drain, opts.Instances}.register(a)
	configurationRoutes{opts.Configurator, opts.Providers}.register(a)
	tenantRoutes{opts.TenantConfigurator}.register(a)
	templateRoutes{opts.Templates, opts.TemplateConfigurator}.register(a)
	adminUsageRoutes{opts.Quotas}.register(a)
	adminHistoryRoutes{opts.History}.register(a)
	adminAuditRoutes{opts.AuditArchive}.register(a)
	return a, nil
}

// jsonObject has the schema of client.JSONObject.
type jsonObject struct{}

// Schema implements rest.SchemaProvider.
func (jsonObject) Schema(rest.Registry) *rest.Schema {
	return &rest.Schema{Type: "object", AdditionalProperties: true}
}

// adminSettings has the schema of client.AdminSettings.
type adminSettings struct{}

// Schema implements rest.SchemaProvider.
func (adminSettings) Schema(rest.Registry) *rest.Schema {
	return &rest.Schema{
		Type:        "object",
		Description: "The active provider, and the settings of each provider under its label. Secrets, and whatever comes from env(), file() or sealed(), show as **** and their last four characters, or none if they are short. A duration is text, such as 30s.",
		Properties:  map[string]*rest.Schema{"active": {Type: "string", Description: "The label of the provider that serves requests naming none."}},
		Required:    []string{"active"},

		AdditionalProperties: &rest.Schema{Type: "object", AdditionalProperties: true},
	}
}

// providerCodes are what a provider may answer to nearly everything.
func providerCodes() []sdk.Code {
	return []sdk.Code{
		sdk.CodeNotInitialized, sdk.CodeConnectionFailed, sdk.CodeCreateFailed, sdk.CodeQuotaExceeded,
		sdk.CodeUnavailable, sdk.CodeNotSupported,
	}
}
