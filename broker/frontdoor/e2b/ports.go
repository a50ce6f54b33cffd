package e2b

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The ports of a sandbox that this door answers for itself.
const (
	portEnvd        = "49983"
	portInterpreter = "49999"
)

// Where hosts of the operator's domain lead that are no sandbox's.
const (
	hostAPI = "api"
	// hostShared is for sandboxes that are named in fields of the header.
	hostShared = "sandbox"
)

// registerPorts has what other ports are asked for answered by the programs that listen
// there: at hosts of the operator's domain, and where fields of the header name the port.
func (d *Door) registerPorts() {
	d.api.AddHost(rest.Host{
		Route: "/" + Name + "/{port}-{sandbox}.{domain}/*", Match: d.programHost, MatchFields: programFields, Open: d.openProgram,
	})
}

// credentialHeaders are kept from the programs.
var credentialHeaders = []string{headerAccessToken, headerTrafficToken}

// below is what stands before the operator's domain in a host.
func (d *Door) below(host string) (label string, ok bool) {
	domain := *d.domain.Load()
	if domain == "" {
		return "", false
	}
	return strings.CutSuffix(host, "."+domain)
}

// ownHost reports whether the routes of this door are at the root of a host.
func (d *Door) ownHost(host string) bool {
	label, ok := d.below(host)
	if !ok || label == hostAPI || label == hostShared {
		return ok
	}
	port, _, err := splitLabel(label)
	return err == nil && (port == portEnvd || port == portInterpreter)
}

// programHost finds the hosts of programs, and all others of the domain: what is below it is
// nobody else's.
func (d *Door) programHost(host string) (label string, ok bool) {
	if d.ownHost(host) {
		return "", false
	}
	return d.below(host)
}

// programFields finds what is asked of a program by fields of the header.
func programFields(h rest.Header) (label string, ok bool) {
	ports, sandboxes := h.Values(headerPort), h.Values(headerSandbox)
	if len(ports) == 0 || len(sandboxes) == 0 {
		return "", false
	}
	port := rest.OnlyOne(ports)
	if port == portEnvd || port == portInterpreter {
		return "", false
	}
	return port + "-" + rest.OnlyOne(sandboxes), true
}

// splitLabel reads a port and the ID of a sandbox as a host has them.
func splitLabel(label string) (port, sandbox string, err error) {
	port, sandbox, found := strings.Cut(label, "-")
	if _, err := lending.ParsePort(port); err != nil || !found || !isID(sandbox) {
		return "", "", refused("host", "must be the port, a number from 1 to 65535, a hyphen and the ID of the sandbox before the domain, or %s and %s must have these", headerPort, headerSandbox)
	}
	return port, sandbox, nil
}

// isID reports whether a text could be the ID of a sandbox.
func isID(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// target is what a request says of where it goes: by its host, or else by fields of its
// header. The port is empty where no host says it.
type target struct{ port, sandbox string }

// targetOf reads it. Those who say two different things are refused: one of them may be what
// somebody before this server has looked at.
func (d *Door) targetOf(host string, fields func(name string) []string) (target, error) {
	named := fields(headerSandbox)
	at := target{sandbox: rest.OnlyOne(named)}
	label, below := d.below(host)
	if !below || label == hostAPI || label == hostShared {
		return at, nil
	}
	port, sandbox, err := splitLabel(label)
	if err != nil {
		return target{}, err
	}
	if len(named) > 0 && at.sandbox != sandbox {
		return target{}, refused(headerSandbox, "names another sandbox than the host")
	}
	if ports := fields(headerPort); len(ports) > 0 && rest.OnlyOne(ports) != port {
		return target{}, refused(headerPort, "names another port than the host")
	}
	return target{port, sandbox}, nil
}

// targetOfRequest is targetOf for a request that was handed over.
func (d *Door) targetOfRequest(r *http.Request) (target, error) {
	return d.targetOf(rest.HostOf(r), r.Header.Values)
}

// answers reports whether the target has what a path of this door's leads to.
func (t target) answers(path string) bool {
	switch t.port {
	case "":
		return true
	case portInterpreter:
		return path == "/health" || isInterpreter(path)
	default:
		return isData(path, true) && !isInterpreter(path)
	}
}

// openProgram finds the program that a request is for. Nobody needs a credential unless the
// creator of the sandbox, or the operator, says so.
func (d *Door) openProgram(ctx context.Context, asked rest.Asked) (owner string, handle rest.StreamHandler, err error) {
	at, err := d.targetOf(asked.Header.Host(), asked.Header.Values)
	if err != nil {
		return "", nil, err
	}
	port, id, err := splitLabel(asked.Label)
	if err != nil {
		return "", nil, err
	}
	info, err := d.instances.Named(ctx, id)
	if frontdoor.Elsewhere(info, err) {
		return "", nil, err
	}
	unknown := info.FrontDoor != Name || isNotFound(err)
	if private := noteOf(info).Private || !d.settings.Load().PublicPorts; private {
		given := rest.OnlyOne(asked.Header.Values(headerTrafficToken))
		if unknown || !same(given, d.tokens.traffic(info.ID)) {
			return "", nil, &trafficRefused{error: errNoTraffic, sandbox: id}
		}
	}
	switch {
	case unknown:
		return "", nil, &sandboxGone{error: noSandbox(), sandbox: id}
	case err != nil:
		return "", nil, err
	case info.Paused && !noteOf(info).AutoResume:
		return "", nil, paused(id)
	}
	who, err := d.owner(info)
	if err != nil {
		return "", nil, &sandboxGone{error: noSandbox(), sandbox: id}
	}
	exchange := portproxy.Exchange{Prefix: asked.Prefix, Path: asked.Path, Scheme: asked.Scheme, Credentials: credentialHeaders}
	if exchange.Port, err = lending.ParsePort(port); err != nil {
		return "", nil, err
	}
	if at.port != "" { // at a host of its own, where clients always speak HTTPS
		exchange.OwnHost, exchange.Scheme = true, "https"
	}
	return who.Name, func(w http.ResponseWriter, r *http.Request) error {
		info, err := d.awake(r.Context(), who, info)
		if err != nil {
			return err
		}
		err = lending.ServePort(w, r, d.instances, lending.Passage{Tenant: who, InstanceID: info.ID.String(), Exchange: exchange})
		switch {
		case isNotFound(err):
			return &sandboxGone{error: err, sandbox: id}
		case errors.Is(err, &sdk.Error{Code: sdk.CodeConnectionFailed}):
			return &sandboxGone{error: err, sandbox: id, port: int(exchange.Port)}
		default:
			return err
		}
	}, nil
}

// hostWithoutPort is a domain as hosts end in it.
func hostWithoutPort(domain string) string {
	host, _, _ := strings.Cut(strings.ToLower(domain), ":")
	return host
}

// domainOf is the domain that clients are told of, nil for none.
func (d *Door) domainOf() *string {
	if domain := d.settings.Load().Domain; domain != "" {
		return &domain
	}
	return nil
}

var errNoTraffic = sdk.Errorf(sdk.CodeNotAllowed, "The traffic access token of the sandbox is needed: %s, as create and connect answer it.", headerTrafficToken)
