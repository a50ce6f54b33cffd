package api

import (
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/api/v1"
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

// Options of a Server.
type Options struct {
	Instances v1.Instances
	Tenants   rest.Tenants
	// Admin may be nil: then there are no administrators.
	Admin Admin
	// Quotas may be nil: then there are none.
	Quotas Quotas
	// Configurator and TenantConfigurator may be nil where Admin is.
	Configurator       v1.Configurator
	TenantConfigurator v1.TenantConfigurator
	Logger             hclog.Logger
	// Meter may be nil.
	Meter rest.Meter
	// Audit, if not nil, says why nothing can be taken down at this moment, so that
	// nothing is done.
	Audit func() error
	// State, if not nil, says why no state can be kept at this moment.
	State  func() error
	Bounds Bounds
	// Answers may be nil: requests with an Idempotency-Key are refused then.
	Answers rest.Answers
	// TLS is nil for plain HTTP.
	TLS *TLS
	// PreviewKey signs preview links; preview.LoadKey keeps it. Empty for a
	// random one: no link outlives the server then.
	PreviewKey []byte
	// PreviewHosts is nil where previews have paths only.
	PreviewHosts *PreviewHosts
}

// Server serves the broker's APIs.
type Server struct {
	*rest.Server
	v1           *rest.API
	previewHosts atomic.Pointer[PreviewHosts]
}

// NewServer returns a server that Serve starts and Shutdown ends.
func NewServer(opts Options) (*Server, error) {
	s := &Server{Server: rest.NewServer(rest.Options{
		Tenants: opts.Tenants, Administrators: opts.Admin, Rates: opts.Quotas, Logger: opts.Logger, Meter: opts.Meter,
		Bounds: opts.Bounds, Answers: opts.Answers, TLS: opts.TLS,
	})}
	s.SetPreviewHosts(opts.PreviewHosts)
	var err error
	s.v1, err = v1.Add(s.Server, v1.Options{
		Instances: opts.Instances, Providers: opts.Admin, Configurator: opts.Configurator, TenantConfigurator: opts.TenantConfigurator,
		Quotas: opts.Quotas, Audit: opts.Audit, State: opts.State, PreviewKey: opts.PreviewKey, PreviewHosts: &s.previewHosts,
	})
	return s, err
}

// SetPreviewHosts changes them for requests that come from now on; nil for none.
func (s *Server) SetPreviewHosts(hosts *PreviewHosts) { s.previewHosts.Store(hosts) }
