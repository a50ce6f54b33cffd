// Package fence keeps a broker that has lost its lease from changing anything at the service
// behind a provider: its instances may be another broker's by then.
package fence

import (
	"errors"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Transport lets requests through that only look, and others as long as the lease is held that
// the context of the request has. What a provider does by itself has none: it may extend the
// life of what it knows, and end nothing.
type Transport struct{ Next http.RoundTripper }

// refusal is why a request was not let through.
type refusal struct{ error }

// Unwrap returns the error of the lease.
func (r *refusal) Unwrap() error { return r.error }

// Refused says that a request was not let through, and has done nothing.
func Refused(err error) bool {
	_, refused := errors.AsType[*refusal](err)
	return refused
}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		if err := sdk.LeaseOf(req.Context()).Held(); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, &refusal{err}
		}
	}
	return t.Next.RoundTrip(req)
}

// CloseIdleConnections lets http.Client close those of what it wraps.
func (t Transport) CloseIdleConnections() {
	if closer, ok := t.Next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}
