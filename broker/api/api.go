package api

import (
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/api/v1"
	"github.com/sandbox-broker/sandbox-broker/broker/console"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/deerflow"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/e2b"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/mcp"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/opensandbox"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/ragflow"
)

type (
	// Bounds of a request.
	Bounds = rest.Bounds
	// TLS is what the server identifies itself with.
	TLS = rest.TLS
	// PreviewHosts are addresses at which each preview has a host of its own.
	PreviewHosts = v1.PreviewHosts
)

// Admin is what administrators ask, and how they are known; admin.Service is it.
type Admin interface {
	rest.Administrators
	v1.Providers
}

// Quotas count requests and say what a tenant has used; quota.Keeper is it.
type Quotas interface {
	rest.Rates
	v1.Quotas
}

// Instances does what all APIs promise; instance.Service is it.
type Instances interface {
	v1.Instances
	ragflow.Instances
	opensandbox.Instances
	e2b.Instances
	deerflow.Instances
}

// Options of a Server.
type Options struct {
	Instances Instances
	Snapshots v1.Snapshots
	// Volumes may be nil where nobody asks for one.
	Volumes v1.Volumes
	Tenants frontdoor.Tenants
	// Admin may be nil: then there are no administrators.
	Admin Admin
	// Quotas may be nil: then there are none.
	Quotas Quotas
	// Executions may be nil: then none is remembered, and none can be detached.
	Executions *executions.Keeper
	// Webhooks may be nil: then there are none.
	Webhooks v1.Webhooks
	// Configurator and TenantConfigurator may be nil where Admin is.
	Configurator       v1.Configurator
	TenantConfigurator v1.TenantConfigurator
	// TemplateConfigurator is as these. Templates may be nil: then there are none.
	TemplateConfigurator v1.TemplateConfigurator
	Templates            v1.Templates
	Logger               hclog.Logger
	// Meter may be nil.
	Meter rest.Meter
	// History may be nil: then nothing is known of what was.
	History v1.History
	// AuditArchive may be nil: then there is no audit log to look into.
	AuditArchive v1.AuditArchive
	// Tracer may be nil.
	Tracer rest.Tracer
	// Audit, if not nil, says why nothing can be taken down at this moment, so that
	// nothing is done.
	Audit func() error
	// State, if not nil, says why no state can be kept at this moment.
	State func() error
	// Drain may be nil where there are no administrators.
	Drain  v1.Drain
	Bounds Bounds
	// Answers may be nil: requests with an Idempotency-Key are refused then, and so are
	// the operations of OpenSandbox.
	Answers opensandbox.Answers
	// TLS is nil for plain HTTP.
	TLS *TLS
	// PreviewKey signs preview links, and what front doors give their clients for one
	// sandbox; preview.LoadKey keeps it. Empty for a random one: nothing of that outlives
	// the server then.
	PreviewKey []byte
	// PreviewHosts is nil where previews have paths only.
	PreviewHosts *PreviewHosts
	// Version of the broker, for clients that ask.
	Version string
	// Peers may be nil: then no call is passed on to another broker.
	Peers rest.Peers
	// Questions may be nil: then other brokers are not answered what they ask themselves.
	Questions rest.Questions
	// FrontDoors that are open, by name.
	FrontDoors map[string]frontdoor.Settings
}

// Server serves the broker's APIs.
type Server struct {
	*rest.Server
	v1           *rest.API
	previewHosts atomic.Pointer[PreviewHosts]
	doors        map[string]frontdoor.Door
}

// NewServer returns a server that Serve starts and Shutdown ends.
func NewServer(opts Options) (*Server, error) {
	if len(opts.PreviewKey) == 0 {
		opts.PreviewKey = preview.NewKey()
	}
	s := &Server{Server: rest.NewServer(rest.Options{
		Tenants: opts.Tenants, Administrators: opts.Admin, Rates: opts.Quotas, Logger: opts.Logger, Meter: opts.Meter, Tracer: opts.Tracer,
		Bounds: opts.Bounds, Answers: opts.Answers, TLS: opts.TLS, Peers: opts.Peers, Questions: opts.Questions,
	})}
	s.SetPreviewHosts(opts.PreviewHosts)
	var err error
	s.v1, err = v1.Add(s.Server, v1.Options{
		Instances: opts.Instances, Snapshots: opts.Snapshots, Volumes: opts.Volumes, Providers: opts.Admin, Configurator: opts.Configurator, TenantConfigurator: opts.TenantConfigurator,
		Quotas: opts.Quotas, Executions: opts.Executions, Webhooks: opts.Webhooks, History: opts.History, AuditArchive: opts.AuditArchive, Audit: opts.Audit, State: opts.State, Drain: opts.Drain, PreviewKey: opts.PreviewKey, PreviewHosts: &s.previewHosts,
		TemplateConfigurator: opts.TemplateConfigurator, Templates: opts.Templates,
	})
	if err == nil {
		err = console.Add(s.v1, v1.TagPages)
	}
	if err != nil {
		return nil, err
	}
	s.doors = map[string]frontdoor.Door{
		ragflow.Name:     ragflow.Add(s.Server, opts.Instances, opts.Tenants),
		opensandbox.Name: opensandbox.Add(s.Server, opts.Instances, opts.Snapshots, opts.Tenants, opts.Answers, opts.PreviewKey),
		e2b.Name:         e2b.Add(s.Server, opts.Instances, opts.Snapshots, opts.Tenants, opts.PreviewKey),
		mcp.Name:         mcp.Add(s.Server, opts.Version),
		deerflow.Name:    deerflow.Add(s.Server, opts.Instances, opts.Tenants, opts.Logger, opts.PreviewKey),
	}
	s.SetFrontDoors(opts.FrontDoors)
	return s, nil
}

// SetFrontDoors opens those that are given, by name, and closes all others.
func (s *Server) SetFrontDoors(open map[string]frontdoor.Settings) {
	for name, door := range s.doors {
		s.Own(name).Open(open[name].Listen != "")
		if settings, ok := open[name]; ok {
			door.Apply(&settings)
		} else {
			door.Apply(nil)
		}
	}
}

// FrontDoors has what serves each front door at listeners of its own, by name.
func (s *Server) FrontDoors() map[string]*rest.Own {
	servers := map[string]*rest.Own{}
	for name := range s.doors {
		servers[name] = s.Own(name)
	}
	return servers
}

// SetPreviewHosts changes them for requests that come from now on; nil for none.
func (s *Server) SetPreviewHosts(hosts *PreviewHosts) { s.previewHosts.Store(hosts) }
