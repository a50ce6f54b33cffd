package opensandbox

import (
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// passedOn are the methods that programs are asked with. HEAD comes with GET.
var passedOn = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// registerPorts has what a port is asked for answered by the program that listens there.
// Below the ports of OpenSandbox's own daemons, whatever has no operation leads nowhere.
func (d *Door) registerPorts(base string) {
	// OpenSandbox's daemon passes on to ports too: some clients know its address alone.
	d.registerPort(strings.Replace(base, "{port}", portExecd+"/proxy/{port}", 1))
	d.registerPort(base)
}

// registerPort does that for the ports below one base.
func (d *Door) registerPort(base string) {
	for _, method := range passedOn {
		for _, pattern := range []string{base + "/*", base} {
			rest.Stream(d.api, rest.Operation{Method: method, Path: pattern, AnyQuery: true}, func(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
				return d.passToPort(w, r, c, pattern)
			})
		}
	}
}

func (d *Door) passToPort(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None], pattern string) error {
	port, err := lending.ParsePort(c.Path["port"])
	if err != nil {
		return err
	}
	if name := c.Path["port"]; name == portExecd || name == portEgress {
		return sdk.Errorf(sdk.CodeNotFound, "There is no such route on port %s.", name)
	}
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	// A client never hears of a redirection: it would drop its credentials on the way.
	prefix, path, ok := c.SplitPath(pattern, rest.PathAsSent(r))
	if !ok {
		path = "/"
	}
	return lending.ServePort(w, r, d.instances, lending.Passage{
		Tenant: c.Tenant, InstanceID: info.ID.String(),
		Exchange: portproxy.Exchange{Port: port, Prefix: prefix, Path: path, Scheme: c.Scheme, Credentials: credentialHeaders},
	})
}
