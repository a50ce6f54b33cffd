package opensandbox

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// portEgress is where the sidecar listens that keeps a sandbox's traffic in bounds. Every
// client asks for its address when it makes a sandbox.
const portEgress = "18080"

// policyStatus is what a client may know of the policy.
type policyStatus struct {
	Status          string        `json:"status"`
	Mode            string        `json:"mode"`
	EnforcementMode string        `json:"enforcementMode"`
	Policy          networkPolicy `json:"policy"`
}

type networkPolicy struct {
	DefaultAction string       `json:"defaultAction"`
	Egress        []egressRule `json:"egress"`
}

type egressRule struct {
	Action string `json:"action"`
	Target string `json:"target"`
}

// The default actions of a policy.
const (
	actionAllow = "allow"
	actionDeny  = "deny"
)

// defaultAction is what holds for all traffic, as the operator says. Where he says nothing,
// nobody promises that anything is kept from the network.
func (d *Door) defaultAction() string {
	if d.settings.Load().Network == config.NetworkDeny {
		return actionDeny
	}
	return actionAllow
}

func (d *Door) registerEgress(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/healthz"}, d.egressHealth)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/policy"}, d.policy)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/capabilities"}, d.egressCapabilities)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/extensions"}, d.egressExtensions)
	rest.Register(d.api, rest.Operation{Method: http.MethodPut, Path: base + "/extensions"}, func(context.Context, rest.Call[rest.Raw]) (int, rest.None, error) {
		return 0, rest.None{}, &rest.Error{Code: sdk.CodeNotSupported, Status: http.StatusPreconditionFailed, Detail: "CAPABILITY_UNAVAILABLE: this egress policy has no extensions."}
	})
	rest.Register(d.api, rest.Operation{Method: http.MethodPatch, Path: base + "/policy"}, d.patchPolicy)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/policy"}, d.deleteRules)
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		rest.Register(d.api, rest.Operation{Method: method, Path: base + "/policy"}, func(context.Context, rest.Call[rest.Raw]) (int, rest.None, error) {
			return 0, rest.None{}, unavailable("an egress policy is changed rule by rule here: by PATCH and DELETE.")
		})
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		for _, path := range []string{"/credential-vault", "/credential-vault/{kind}", "/credential-vault/{kind}/{name}"} {
			rest.Register(d.api, rest.Operation{Method: method, Path: base + path, AnyQuery: true}, func(context.Context, rest.Call[rest.Raw]) (int, rest.None, error) {
				return 0, rest.None{}, &rest.Error{Code: sdk.CodeNotFound, Status: http.StatusNotFound, Detail: "There is no credential vault."}
			})
		}
	}
}

func (d *Door) egressHealth(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	_, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, rest.None{}, err
}

// capabilityList are the kinds of extensions that there are.
type capabilityList struct {
	ProtocolVersion string `json:"protocolVersion"`
	Resources       []any  `json:"resources"`
}

func (d *Door) egressCapabilities(ctx context.Context, c rest.Call[rest.None]) (int, capabilityList, error) {
	_, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, capabilityList{ProtocolVersion: "extensions.opensandbox.io/v1alpha1", Resources: []any{}}, err
}

type extensionList struct {
	Revision   int   `json:"revision"`
	Resources  []any `json:"resources"`
	Conditions []any `json:"conditions"`
}

func (d *Door) egressExtensions(ctx context.Context, c rest.Call[rest.None]) (int, extensionList, error) {
	_, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, extensionList{Resources: []any{}, Conditions: []any{}}, err
}
