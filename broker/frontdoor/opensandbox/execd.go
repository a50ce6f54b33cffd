package opensandbox

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// portExecd is where the daemon listens that runs code and keeps files.
const portExecd = "44772"

// execd answers what OpenSandbox's daemon of that name does.
type execd struct{ *Door }

// register registers its routes. Each group of them has a file of its own.
func (d execd) register(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/ping", Quiet: true}, d.ping)
	d.registerCommands(base)
	d.registerOperations(base)
	d.registerSessions(base)
	d.registerTerminals(base)
	d.registerCode(base)
	d.registerFiles(base)
	d.registerMetrics(base)
	d.registerIsolated(base)
}

// ping says whether the sandbox can be used.
func (d execd) ping(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err == nil && info.Paused {
		err = sdk.Errorf(sdk.CodeConflict, "The sandbox is paused.")
	}
	return http.StatusOK, rest.None{}, err
}
