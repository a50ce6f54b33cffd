package v1

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

const (
	pathPort    = "/api/v1/instances/{id}/ports/{port}/*"
	pathPreview = "/preview/{token}/*"
	// dialTimeout bounds the connecting to a port.
	dialTimeout = 15 * time.Second
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

// passage says who asks which program.
type passage struct {
	tenant     tenant.Tenant
	instanceID string
	// scheme that the client has used.
	scheme string
	port   uint16
	// pattern is the route's, whose * is what the program is asked for.
	pattern string
	// until ends the exchange, if it is not zero.
	until   time.Time
	browser bool
	// ownHost is set for a preview with a host of its own. It has no pattern.
	ownHost bool
}

func (h portRoutes) passToPort(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	port, err := parsePort(c.Path["port"])
	if err != nil {
		return err
	}
	return h.passOn(w, r, passage{tenant: c.Tenant, scheme: c.Scheme, instanceID: c.Path["id"], port: port, pattern: pathPort})
}

// parsePort reads a port as there is but one way to write it.
func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != text {
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, "port", "must be a number from 1 to 65535")
	}
	return uint16(port), nil
}

// passOn lets a program in an instance answer a request.
func (h portRoutes) passOn(w http.ResponseWriter, r *http.Request, p passage) error {
	prefix, path, ok := "", rest.PathAsSent(r), true
	if !p.ownHost {
		prefix, path, ok = rest.SplitPath(p.pattern, path)
	}
	if !ok { // relative links of the page would lead elsewhere
		return redirectToRoot(w, r)
	}
	lease, err := h.instances.Lease(r.Context(), p.tenant, p.instanceID, sdk.CapabilityPorts)
	if err != nil {
		return err
	}
	defer lease.Release()
	ports, err := instance.Capable[sdk.Ports](lease)
	if err != nil {
		return err
	}
	within := lease.Within
	if endless(r) {
		within = lease.Watching
	}
	ctx, cancel := within(r.Context())
	defer cancel()
	if !p.until.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, p.until)
		defer stop()
	}

	dialling, dialled := context.WithTimeout(ctx, dialTimeout)
	conn, err := ports.DialPort(dialling, lease.InstanceID, p.port)
	dialled()
	switch {
	case err == nil:
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return lease.Fault(ctx, sdk.Errorf(sdk.CodeConnectionFailed, "port %d of the instance could not be connected to in time", p.port))
	default:
		return h.ended(ctx, lease, err)
	}
	defer conn.Close()
	exchange := portproxy.Exchange{
		Conn: conn, Port: p.port, Prefix: prefix, Path: path, Scheme: p.scheme, Host: r.Host,
		RequestID: rest.RequestIDOf(w), Browser: p.browser, OwnHost: p.ownHost,
	}
	err = exchange.Serve(w, r.WithContext(ctx))
	if errors.Is(err, portproxy.ErrAnswer) {
		return lease.Fault(ctx, sdk.Errorf(sdk.CodeConnectionFailed, "what listens on port %d of the instance did not answer as HTTP does, or not to the end", p.port))
	}
	return h.ended(ctx, lease, err)
}

// ended explains why an exchange could not go on.
func (h portRoutes) ended(ctx context.Context, lease *instance.Lease, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = sdk.Errorf(sdk.CodeNotAllowed, "the time of the link is over")
	}
	return lease.Fault(ctx, err)
}

// endless reports whether a request asks for what never ends by itself, so that
// nobody waits for it when the broker stops.
func endless(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(r.Header.Get("Accept"), sse.MediaType)
}

func redirectToRoot(w http.ResponseWriter, r *http.Request) error {
	location := rest.PathAsSent(r) + "/"
	if r.URL.RawQuery != "" {
		location += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", location)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusPermanentRedirect)
	return nil
}

// How long a link is valid: unless the tenant says so, and at most.
const (
	defaultPreview = 10 * time.Minute
	maxPreview     = 24 * time.Hour
)

func (h portRoutes) createPreview(ctx context.Context, c rest.Call[client.CreatePreviewRequest]) (int, client.Preview, error) {
	port, err := parsePort(c.Path["port"])
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
	return h.passOn(w, r, passage{
		scheme: c.Scheme,
		tenant: tenant.Tenant{Name: grant.Tenant}, instanceID: grant.InstanceID, port: grant.Port,
		pattern: pathPreview, until: grant.Expires, browser: true,
	})
}
