// Package ragflow is the front door for RAGFlow: it answers as the executor manager that
// RAGFlow's self-managed sandbox provider calls, so that changing the address there is all
// that it takes (docs/front-doors/ragflow.md).
//
// What goes over the wire is taken from RAGFlow's public sources (commit b1b8cd6 of
// 2026-08-22, and its pull requests 18703 and 19783). Start with run.go; answer.go puts
// an execution into RAGFlow's words, problem.go a refusal.
package ragflow

import (
	"context"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Name of the door.
const Name = "ragflow"

// Instances runs code; instance.Service is it.
type Instances interface {
	Run(ctx context.Context, who tenant.Tenant, req instance.RunRequest) (instance.Execution, error)
	Providers(who tenant.Tenant) []instance.ProviderInfo
	DefaultProviders() []instance.ProviderInfo
	Draining() bool
}

// Door answers RAGFlow.
type Door struct {
	api       *rest.API
	instances Instances
	tenants   frontdoor.Tenants
	settings  atomic.Pointer[frontdoor.Settings]
}

var _ frontdoor.Door = (*Door)(nil)

// Add adds the door to a server. It is closed until Apply opens it.
func Add(server *rest.Server, instances Instances, tenants frontdoor.Tenants) *Door {
	d := &Door{instances: instances, tenants: tenants}
	d.settings.Store(&frontdoor.Settings{})
	d.api = server.NewAPI(rest.APIOptions{
		Name: Name, Authenticate: d.authenticate, Problem: problem,
	})
	// Those whose settings have no field for a token write it into the endpoint.
	for _, base := range []string{"", "/{token}"} {
		rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/run"}, d.run)
		rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/healthz", Public: true, Quiet: true}, d.health)
		rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/", Public: true, Quiet: true}, d.health)
		rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base, Public: true, Quiet: true}, d.health)
	}
	return d
}

// Apply implements frontdoor.Door.
func (d *Door) Apply(s *frontdoor.Settings) {
	if s == nil {
		d.api.Mount("")
		return
	}
	d.settings.Store(s)
	d.api.Mount(s.Path)
}

// headerToken is where newer versions of the client put their token.
const headerToken = "X-Sandbox-Token"

var errStranger = sdk.Errorf(sdk.CodeNotAuthenticated, "A valid token is needed: Authorization: Bearer <token>, X-Sandbox-Token: <token>, or <token> as the last part of the endpoint's path.")

// authenticate finds the tenant by the token, wherever that is. Who gives none is the
// tenant that the operator has named for that, if he has.
func (d *Door) authenticate(_ context.Context, h rest.Header) (who tenant.Tenant, err error) {
	tokens := append(rest.BearerTokens(h), h.Values(headerToken)...)
	path, _, _ := strings.Cut(h.Target(), "?")
	if parts := strings.Split(path, "/"); len(parts) == 3 {
		tokens = append(tokens, parts[1])
	}
	known := false
	if name := d.settings.Load().Tenant; len(tokens) > 0 {
		who, known = d.tenants.Authenticate(rest.OnlyOne(tokens))
	} else if name != "" {
		if err := ofAPage(h); err != nil {
			return who, err
		}
		who, known = d.tenants.Tenant(name)
	}
	if !known {
		return who, errStranger
	}
	return who, nil
}

// ofAPage refuses a request without a token that a page in a browser may have sent. Any page could
// run code, by a form or by a name that it has lead to this address. Browsers say so in one of two
// fields; RAGFlow's client sends neither, and sends JSON.
func ofAPage(h rest.Header) error {
	for _, field := range []string{"Origin", "Sec-Fetch-Site"} {
		if len(h.Values(field)) > 0 {
			return sdk.Errorf(sdk.CodeNotAllowed, "A page in a browser must send a token.")
		}
	}
	if h.Method() != http.MethodPost {
		return nil
	}
	media := h.Values("Content-Type")
	if len(media) == 1 {
		if name, _, err := mime.ParseMediaType(media[0]); err == nil && name == "application/json" {
			return nil
		}
	}
	return sdk.Errorf(sdk.CodeNotAllowed, "Without a token the body must be application/json.")
}

// health is what both routes answer when a run could be served.
type health struct {
	Status string `json:"status"`
}

// health says 200 only if a run could be served: the client asks before every run, and
// tells its user that the provider cannot be reached unless this is so.
func (d *Door) health(_ context.Context, c rest.Call[rest.None]) (int, health, error) {
	if c.Path["token"] == "run" {
		return 0, health{}, rest.BadRequest(http.StatusMethodNotAllowed, "This route takes POST.")
	}
	if d.instances.Draining() {
		return 0, health{}, sdk.Errorf(sdk.CodeUnavailable, "The broker is shutting down.")
	}
	providers, label := d.instances.DefaultProviders(), d.settings.Load().Provider
	if label != "" {
		providers = d.instances.Providers(tenant.Tenant{})
	}
	for _, p := range providers {
		if p.Status.Ready && (label == "" || p.Label == label) {
			return http.StatusOK, health{"ok"}, nil
		}
	}
	return 0, health{}, sdk.Errorf(sdk.CodeUnavailable, "No provider is ready.")
}
