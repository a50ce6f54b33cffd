package v1

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	pathPort    = "/api/v1/instances/{id}/ports/{port}/*"
	pathPreview = "/preview/{token}/*"
)

// passedOn are the methods that programs in instances are asked with. HEAD comes
// with GET.
var passedOn = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// portRoutes reach the programs in an instance that listen on its ports.
type portRoutes struct {
	instances Instances
	previews  *preview.Signer
	// hosts holds nil where previews have paths only.
	hosts  *atomic.Pointer[PreviewHosts]
	labels *labelCache
}

func (h portRoutes) register(a *rest.API) {
	a.AddHost(rest.Host{Route: routePreviewHost, Match: h.previewLabel, Open: h.openPreviewHost})
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/ports/{port}/preview", ID: "createPreview", Tag: tagPorts, Resumes: true, Unprocessable: true,
		Summary: "Make a link for a browser",
		Details: "Whoever has the link reaches that port, without a token, until it expires or the instance ends. Nothing need listen there yet. " +
			"This path is the broker's own: a program's own /preview can be posted to by a link only.",
		Success: []int{http.StatusCreated}, Codes: append(providerCodes(), sdk.CodeNotFound),
	}, h.createPreview)
	for _, method := range passedOn {
		codes := append(providerCodes(), sdk.CodeInvalidRequest, sdk.CodeNotFound, sdk.CodeConflict)
		name, consumes := strings.ToLower(method), ""
		if method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch {
			consumes = rest.AnyMediaType
		}
		rest.Stream(a, rest.Operation{
			Method: method, Path: pathPort, ID: name + "Port", Tag: tagPorts, Unprocessable: true,
			Summary: "Pass a request on to a program that listens on a port in the instance",
			Details: "Status, headers and body are the program's, except what would speak for the broker; a problem has the broker's own form and type. " +
				"WebSockets and other upgrades are passed on too. The exchange counts as use of the instance and ends with it.",
			AnyQuery: true, Consumes: consumes, Produces: rest.AnyMediaType, Success: []int{http.StatusOK}, Codes: codes,
		}, h.passToPort)
		rest.Stream(a, rest.Operation{
			Method: method, Path: pathPreview, ID: name + "Preview", Tag: tagPorts, Public: true,
			Summary:  "The same by a link that was made for it",
			Details:  "Needs no token. Pages have an origin of their own (Content-Security-Policy: sandbox).",
			AnyQuery: true, Consumes: consumes, Produces: rest.AnyMediaType, Success: []int{http.StatusOK}, Codes: append(codes, sdk.CodeNotAllowed),
		}, h.passToPreview)
	}
}

func (h portRoutes) passToPort(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	port, err := lending.ParsePort(c.Path["port"])
	if err != nil {
		return err
	}
	return h.passOn(w, r, pathPort, lending.Passage{
		Tenant: c.Tenant, InstanceID: c.Path["id"], Exchange: portproxy.Exchange{Port: port, Scheme: c.Scheme},
	})
}

// passOn lets a program in an instance answer a request. The * of the route's pattern is
// what the program is asked for.
func (h portRoutes) passOn(w http.ResponseWriter, r *http.Request, pattern string, p lending.Passage) error {
	prefix, path, ok := rest.SplitPath(pattern, rest.PathAsSent(r))
	if !ok {
		return lending.RedirectToRoot(w, r)
	}
	p.Exchange.Prefix, p.Exchange.Path = prefix, path
	return lending.ServePort(w, r, h.instances, p)
}

// How long a link is valid: unless the tenant says so, and at most.
const (
	defaultPreview = 10 * time.Minute
	maxPreview     = 24 * time.Hour
)

func (h portRoutes) createPreview(ctx context.Context, c rest.Call[client.CreatePreviewRequest]) (int, client.Preview, error) {
	port, err := lending.ParsePort(c.Path["port"])
	if err != nil {
		return 0, client.Preview{}, err
	}
	ttl := defaultPreview
	if c.Body.TTL > 0 {
		ttl = duration(c.Body.TTL)
	}
	if ttl > maxPreview {
		return 0, client.Preview{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be at most %d", int(maxPreview.Seconds()))
	}
	lease, err := h.instances.Lease(ctx, c.Tenant, c.Path["id"], sdk.CapabilityPorts)
	if err != nil {
		return 0, client.Preview{}, err
	}
	defer lease.Release()
	if _, err := instance.Capable[sdk.Ports](lease); err != nil {
		return 0, client.Preview{}, err
	}
	expires := time.Now().Add(ttl).UTC().Truncate(time.Millisecond)
	grant := preview.Grant{Tenant: c.Tenant.Name, InstanceID: c.Path["id"], Port: port, Expires: expires}
	token, err := h.previews.Sign(grant)
	if err != nil {
		return 0, client.Preview{}, err
	}
	link := url.URL{Scheme: c.Scheme, Host: c.Host, Path: "/preview/" + token + "/"}
	answer := client.Preview{URL: link.String(), Path: link.Path, Port: int(port), ExpiresAt: expires}
	if hosts := h.hosts.Load(); hosts != nil {
		answer.HostURL = hosts.address(h.previews.Label(grant))
	}
	return http.StatusCreated, answer, c.Withhold(nil) // nobody needs to know of the first, when there is another
}

func (h portRoutes) passToPreview(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	grant, err := h.previews.Verify(c.Path["token"], time.Now())
	if err != nil {
		return errInvalidLink
	}
	if err := c.Own(grant.Tenant); err != nil {
		return err
	}
	return h.passOn(w, r, pathPreview, lending.Passage{
		Tenant: tenant.Tenant{Name: grant.Tenant}, InstanceID: grant.InstanceID, Until: grant.Expires,
		Exchange: portproxy.Exchange{Port: grant.Port, Scheme: c.Scheme, Browser: true},
	})
}
