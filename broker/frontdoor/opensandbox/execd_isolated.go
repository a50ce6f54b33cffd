package opensandbox

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// isolation says that sandboxes within a sandbox cannot be had.
type isolation struct {
	Available bool   `json:"available"`
	Message   string `json:"message"`
	Setpriv   bool   `json:"setpriv_available"`
	UserNS    bool   `json:"userns_available"`
	Commit    bool   `json:"commit_supported"`
	Diff      bool   `json:"diff_supported"`
}

// registerIsolated registers the routes of isolated sessions, of which there are none.
func (d execd) registerIsolated(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/v1/isolated/capabilities"}, d.isolationOf)
	for _, method := range passedOn {
		for _, path := range []string{"/v1/isolated", "/v1/isolated/*"} {
			rest.Register(d.api, rest.Operation{Method: method, Path: base + path, AnyQuery: true}, d.refuseIsolation)
		}
	}
}

func (d execd) isolationOf(ctx context.Context, c rest.Call[rest.None]) (int, isolation, error) {
	_, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, isolation{Message: "This server has no isolated sessions; a sandbox of its own is as good."}, err
}

// refuseIsolation answers as OpenSandbox's own daemon does where it cannot isolate.
func (d execd) refuseIsolation(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	if _, err := d.sandbox(ctx, c.Tenant, c.Path["id"]); err != nil {
		return 0, rest.None{}, err
	}
	return 0, rest.None{}, spoken("NOT_SUPPORTED", &rest.Error{
		Code: sdk.CodeNotSupported, Status: http.StatusServiceUnavailable, Detail: "This server has no isolated sessions.",
	})
}
