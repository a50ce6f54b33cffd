package opensandbox

import (
	"context"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Where clients put what they identify themselves with.
const (
	headerAPIKey      = "OPEN-SANDBOX-API-KEY"
	headerAccessToken = "X-EXECD-ACCESS-TOKEN"
	headerEgressAuth  = "OPENSANDBOX-EGRESS-AUTH"
)

// credentialHeaders are those that no program in a sandbox gets to see.
var credentialHeaders = []string{headerAPIKey, headerAccessToken, headerEgressAuth}

// tokens gives each sandbox a token of its own. It follows from the sandbox's ID, so that
// nobody has to keep it, and ends with the sandbox.
type tokens struct{ frontdoor.Signer }

func newTokens(key []byte) tokens {
	return tokens{frontdoor.NewSigner(key, "front door opensandbox: access tokens")}
}

// of is the token of a sandbox: 160 bits in hexadecimal.
func (t tokens) of(id instance.ID) string { return t.Token(id.String()) }

// executionsOf is the name that a sandbox's programs have together: 128 bits in
// hexadecimal, which a sandbox keeps as long as it lives, and no other one has.
func (t tokens) executionsOf(id instance.ID) string {
	return t.Short("executions\x00"+id.String(), 16)
}

func (t tokens) belongs(token string, id instance.ID) bool {
	return frontdoor.Same(token, t.of(id))
}

var (
	errNoKey = sdk.Errorf(sdk.CodeNotAuthenticated, "A valid API key is needed: %s: <key>.", headerAPIKey)
	// errNoAccess is for who has neither. It does not tell whether there is such a sandbox.
	errNoAccess = sdk.Errorf(sdk.CodeNotAuthenticated, "A valid credential is needed: the headers that the endpoint of this port came with, or %s: <key>.", headerAPIKey)
)

// authenticate finds the tenant: by its API key, or below the address of a sandbox's port
// by the token of that sandbox. There a key may be where the token is expected, as newer
// clients send it.
func (d *Door) authenticate(ctx context.Context, h rest.Header) (tenant.Tenant, error) {
	keys := append(rest.BearerTokens(h), h.Values(headerAPIKey)...)
	id, ok := sandboxOf(h.Target())
	if !ok {
		if who, known := d.tenants.Authenticate(rest.OnlyOne(keys)); known {
			return who, nil
		}
		return tenant.Tenant{}, errNoKey
	}
	// Bearer tokens below a port are for the program there.
	keys = h.Values(headerAPIKey)
	given := append(h.Values(headerAccessToken), h.Values(headerEgressAuth)...)
	if token := rest.OnlyOne(given); token != "" {
		// Whether it is there yet, after a restart, the handlers look.
		info, err := d.instances.Named(ctx, id)
		if frontdoor.Elsewhere(info, err) {
			return tenant.Tenant{}, err // which knows its token
		}
		if info.FrontDoor == Name && d.tokens.belongs(token, info.ID) {
			if who, known := d.tenants.Tenant(info.ID.Tenant); known {
				return who, nil
			}
		}
		keys = append(keys, token)
	} else if len(given) > 0 {
		return tenant.Tenant{}, errNoAccess
	}
	if who, known := d.tenants.Authenticate(rest.OnlyOne(keys)); known {
		return who, nil // whose sandbox it is, the handlers look
	}
	if len(keys) > 0 {
		return tenant.Tenant{}, noSandbox()
	}
	return tenant.Tenant{}, errNoAccess
}

// sandboxOf is the sandbox below whose port a target is.
func sandboxOf(target string) (id string, ok bool) {
	path, _, _ := strings.Cut(target, "?")
	parts := strings.SplitN(strings.TrimPrefix(path, "/v1"), "/", 6)
	if len(parts) < 5 || parts[0] != "" || parts[1] != "sandboxes" || parts[3] != "proxy" {
		return "", false
	}
	return parts[2], true
}
