package deerflow

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// headerAPIKey is where the provisioner's client puts the token of its tenant.
const headerAPIKey = "X-API-Key"

// tokens gives each sandbox the part of its URL that nobody guesses: its name, which is
// random, and a signature.
type tokens struct{ frontdoor.Signer }

func newTokens(key []byte) tokens {
	return tokens{frontdoor.NewSigner(key, "front door deerflow: URLs of sandboxes")}
}

func (t tokens) of(id instance.ID) string { return id.Instance + "-" + t.Token(id.String()) }

// instanceOf is the name of the instance whose token it claims to be.
func instanceOf(token string) (name string, ok bool) {
	name, _, ok = strings.Cut(token, "-")
	return name, ok
}

var errNoKey = sdk.Errorf(sdk.CodeNotAuthenticated, "A valid API key is needed: %s: <key>. It is a token of a tenant.", headerAPIKey)

// authenticate finds the tenant: by its API key, or below the URL of a sandbox by that. A
// key is of no use there: clients never send one.
func (d *Door) authenticate(ctx context.Context, h rest.Header) (tenant.Tenant, error) {
	path, _, _ := strings.Cut(h.Target(), "?")
	below, data := strings.CutPrefix(path, "/s/")
	if !data {
		if who, known := d.tenants.Authenticate(rest.OnlyOne(h.Values(headerAPIKey))); known {
			return who, nil
		}
		return tenant.Tenant{}, errNoKey
	}
	token, route, _ := strings.Cut(below, "/")
	// Whether it is there yet, after a restart, and whether it is paused, the handlers look.
	name, _ := instanceOf(token)
	info, err := d.instances.Named(ctx, name)
	if frontdoor.Elsewhere(info, err) {
		return tenant.Tenant{}, err // which knows its token
	}
	if info.FrontDoor == Name && frontdoor.Same(token, d.tokens.of(info.ID)) {
		if who, known := d.tenants.Tenant(info.ID.Tenant); known {
			return who, nil
		}
	}
	if "/"+route == "/v1"+routeBash {
		return tenant.Tenant{}, notMissing(errGone)
	}
	return tenant.Tenant{}, errGone
}

// notMissing makes 410 of what is not found. To clients, 404 of one route means that no
// sandbox of this server has it, and they never ask for it again.
func notMissing(err error) error {
	if !isNotFound(err) {
		return err
	}
	return &rest.Error{Code: sdk.CodeNotFound, Status: http.StatusGone, Detail: rest.RefusalOf(err, "").Detail}
}

// url is where a sandbox is asked. Clients keep it as long as the sandbox lives, and follow
// no redirection on the way.
func (d *Door) url(c call, info instance.Info) string {
	address := d.settings.Load().Address
	switch {
	case address == "":
		address = c.Scheme + "://" + c.Host
	case !strings.Contains(address, "://"):
		address = c.Scheme + "://" + address
	}
	return address + c.Mounted() + "/s/" + d.tokens.of(info.ID)
}

// call is what a URL is made for, whatever its body was.
type call struct {
	Scheme, Host string
	Mounted      func() string
}

func callOf[In any](c rest.Call[In]) call { return call{c.Scheme, c.Host, c.Mounted} }
