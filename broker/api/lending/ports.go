package lending

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// dialTimeout bounds the connecting to a port.
const dialTimeout = 15 * time.Second

// Passage says who asks which program, and how the request looks to it.
type Passage struct {
	Tenant     tenant.Tenant
	InstanceID string
	// Until ends the exchange, if it is not zero.
	Until time.Time
	// Exchange has all but Conn, Host and RequestID, which ServePort fills in.
	Exchange portproxy.Exchange
}

// ServePort lets a program that listens on a port in an instance answer a request, with
// a WebSocket too. The exchange is a use of the instance and ends with it.
func ServePort(w http.ResponseWriter, r *http.Request, instances Instances, p Passage) error {
	lease, err := instances.Lease(r.Context(), p.Tenant, p.InstanceID, sdk.CapabilityPorts)
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
	if !p.Until.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, p.Until)
		defer stop()
	}

	exchange := p.Exchange
	dialling, dialled := context.WithTimeout(ctx, dialTimeout)
	exchange.Conn, err = ports.DialPort(dialling, lease.InstanceID, exchange.Port)
	dialled()
	switch {
	case err == nil:
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return lease.Fault(ctx, sdk.Errorf(sdk.CodeConnectionFailed, "port %d of the instance could not be connected to in time", exchange.Port))
	default:
		return exchangeEnded(ctx, lease, err)
	}
	defer exchange.Conn.Close()
	exchange.Host, exchange.RequestID = r.Host, rest.RequestIDOf(w)
	err = exchange.Serve(w, r.WithContext(ctx))
	if errors.Is(err, portproxy.ErrAnswer) {
		return lease.Fault(ctx, sdk.Errorf(sdk.CodeConnectionFailed, "what listens on port %d of the instance did not answer as HTTP does, or not to the end", exchange.Port))
	}
	return exchangeEnded(ctx, lease, err)
}

// exchangeEnded explains why an exchange could not go on.
func exchangeEnded(ctx context.Context, lease *instance.Lease, err error) error {
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

// ParsePort reads a port as there is but one way to write it.
func ParsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != text {
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, "port", "must be a number from 1 to 65535")
	}
	return uint16(port), nil
}

// RedirectToRoot answers a request for a program whose path ends before the program's
// own begins, without the slash: relative links of the page would lead elsewhere.
func RedirectToRoot(w http.ResponseWriter, r *http.Request) error {
	location := rest.PathAsSent(r) + "/"
	if r.URL.RawQuery != "" {
		location += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", location)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusPermanentRedirect)
	return nil
}
