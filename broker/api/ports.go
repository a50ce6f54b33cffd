package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/broker/api/sse"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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

func (s *Server) portRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/ports/{port}/preview", id: "createPreview", tag: tagPorts, resumes: true,
		summary: "Make a link for a browser",
		details: "Whoever has the link reaches that port, without a token, until it expires or the instance ends. Nothing need listen there yet. " +
			"This path is the broker's own: a program's own /preview can be posted to by a link only.",
		success: []int{http.StatusCreated}, codes: append(providerCodes(), sdk.CodeNotFound),
	}, s.createPreview)
	for _, method := range passedOn {
		codes := append(providerCodes(), sdk.CodeInvalidRequest, sdk.CodeNotFound, sdk.CodeConflict)
		name, consumes := strings.ToLower(method), ""
		if method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch {
			consumes = anyMediaType
		}
		stream(s, operation{
			method: method, path: pathPort, id: name + "Port", tag: tagPorts,
			summary: "Pass a request on to a program that listens on a port in the instance",
			details: "Status, headers and body are the program's, except what would speak for the broker; a problem has the broker's own form and type. " +
				"WebSockets and other upgrades are passed on too. The exchange counts as use of the instance and ends with it.",
			anyQuery: true, consumes: consumes, produces: anyMediaType, success: []int{http.StatusOK}, codes: codes,
		}, s.passToPort)
		stream(s, operation{
			method: method, path: pathPreview, id: name + "Preview", tag: tagPorts, public: true,
			summary:  "The same by a link that was made for it",
			details:  "Needs no token. Pages have an origin of their own (Content-Security-Policy: sandbox).",
			anyQuery: true, consumes: consumes, produces: anyMediaType, success: []int{http.StatusOK}, codes: append(codes, sdk.CodeNotAllowed),
		}, s.passToPreview)
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

func (s *Server) passToPort(w http.ResponseWriter, r *http.Request, c call[none]) error {
	port, err := parsePort(c.path["port"])
	if err != nil {
		return err
	}
	return s.passOn(w, r, passage{tenant: c.tenant, scheme: c.scheme, instanceID: c.id, port: port, pattern: pathPort})
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
func (s *Server) passOn(w http.ResponseWriter, r *http.Request, p passage) error {
	prefix, path, ok := "", pathAsSent(r), true
	if !p.ownHost {
		prefix, path, ok = newPathPattern(operation{path: p.pattern}).rest(path)
	}
	if !ok { // relative links of the page would lead elsewhere
		return redirectToRoot(w, r)
	}
	lease, err := s.instances.Lease(r.Context(), p.tenant, p.instanceID, sdk.CapabilityPorts)
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
		return s.ended(ctx, lease, err)
	}
	defer conn.Close()
	exchange := portproxy.Exchange{
		Conn: conn, Port: p.port, Prefix: prefix, Path: path, Scheme: p.scheme, Host: r.Host,
		RequestID: w.Header().Get(headerRequestID), Browser: p.browser, OwnHost: p.ownHost,
	}
	err = exchange.Serve(w, r.WithContext(ctx))
	if errors.Is(err, portproxy.ErrAnswer) {
		return lease.Fault(ctx, sdk.Errorf(sdk.CodeConnectionFailed, "what listens on port %d of the instance did not answer as HTTP does, or not to the end", p.port))
	}
	return s.ended(ctx, lease, err)
}

// ended explains why an exchange could not go on.
func (s *Server) ended(ctx context.Context, lease *instance.Lease, err error) error {
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

// pathAsSent is the path with all that is escaped in it.
func pathAsSent(r *http.Request) string {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // http://host/path, as it is sent to proxies
		if _, after, ok := strings.Cut(target, "://"); ok {
			_, path, _ := strings.Cut(after, "/")
			target = "/" + path
		}
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}

func redirectToRoot(w http.ResponseWriter, r *http.Request) error {
	location := pathAsSent(r) + "/"
	if r.URL.RawQuery != "" {
		location += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", location)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusPermanentRedirect)
	return nil
}
