package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// How long a link is valid: unless the tenant says so, and at most.
const (
	defaultPreview = 10 * time.Minute
	maxPreview     = 24 * time.Hour
)

// CreatePreviewRequest asks for a link.
type CreatePreviewRequest struct {
	TTL float64 `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"Seconds that the link is valid, 86400 at most; 600 unless given."`
}

// Preview is a link to a port of an instance.
type Preview struct {
	_         struct{}  `additionalProperties:"true"`
	URL       string    `json:"url" doc:"For a browser, at the address that this request was sent to. Who has it needs no token: treat it as a secret."`
	HostURL   string    `json:"host_url,omitempty" doc:"The same with a host of its own, where the operator has a domain for that: for programs that must stand at the root of an address. As much a secret."`
	Path      string    `json:"path" doc:"The URL's path, for those who reach the broker by another address or by HTTPS."`
	Port      int       `json:"port"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (s *Server) createPreview(ctx context.Context, c call[CreatePreviewRequest]) (int, Preview, error) {
	port, err := parsePort(c.path["port"])
	if err != nil {
		return 0, Preview{}, err
	}
	ttl := defaultPreview
	if c.body.TTL > 0 {
		ttl = duration(c.body.TTL)
	}
	if ttl > maxPreview {
		return 0, Preview{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be at most %d", int(maxPreview.Seconds()))
	}
	lease, err := s.instances.Lease(ctx, c.tenant, c.id, sdk.CapabilityPorts)
	if err != nil {
		return 0, Preview{}, err
	}
	defer lease.Release()
	if _, err := instance.Capable[sdk.Ports](lease); err != nil {
		return 0, Preview{}, err
	}
	expires := time.Now().Add(ttl).UTC().Truncate(time.Millisecond)
	grant := preview.Grant{Tenant: c.tenant.Name, InstanceID: c.id, Port: port, Expires: expires}
	token, err := s.previews.Sign(grant)
	if err != nil {
		return 0, Preview{}, err
	}
	link := url.URL{Scheme: c.scheme, Host: c.host, Path: "/preview/" + token + "/"}
	answer := Preview{URL: link.String(), Path: link.Path, Port: int(port), ExpiresAt: expires}
	if hosts := s.previewHosts.Load(); hosts != nil {
		answer.HostURL = hosts.address(s.previews.Label(grant))
	}
	return http.StatusCreated, answer, nil
}

func (s *Server) passToPreview(w http.ResponseWriter, r *http.Request, c call[none]) error {
	grant, err := s.previews.Verify(c.path["token"], time.Now())
	if err != nil {
		return errInvalidLink
	}
	if !c.ticket.Own(grant.Tenant) {
		return errTooManyConnections
	}
	if stream, ok := w.(*streamWriter); ok {
		stream.tenant = grant.Tenant
	}
	return s.passOn(w, r, passage{
		scheme: c.scheme,
		tenant: tenant.Tenant{Name: grant.Tenant}, instanceID: grant.InstanceID, port: grant.Port,
		pattern: pathPreview, until: grant.Expires, browser: true,
	})
}
