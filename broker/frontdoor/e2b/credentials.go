package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Where clients say which sandbox they mean, and what they identify themselves with.
const (
	headerAPIKey       = "X-API-Key"
	headerSandbox      = "E2b-Sandbox-Id"
	headerPort         = "E2b-Sandbox-Port"
	headerAccessToken  = "X-Access-Token"
	headerTrafficToken = "E2b-Traffic-Access-Token"
)

// tokens gives each sandbox the two tokens that E2B has: one for envd, and one for what
// listens on other ports. They follow from the sandbox's ID, so that nobody has to keep
// them, and end with the sandbox.
type tokens struct{ frontdoor.Signer }

func newTokens(key []byte) tokens {
	return tokens{frontdoor.NewSigner(key, "front door e2b: tokens of sandboxes")}
}

// envd is the token of a sandbox's files and processes: 160 bits in hexadecimal.
func (t tokens) envd(id instance.ID) string { return t.of("envd", id) }

// traffic is the token of a sandbox's ports, the code interpreter's among them.
func (t tokens) traffic(id instance.ID) string { return t.of("traffic", id) }

func (t tokens) of(purpose string, id instance.ID) string {
	return t.Token(purpose + " " + id.String())
}

func same(a, b string) bool { return frontdoor.Same(a, b) }

var (
	errNoKey = sdk.Errorf(sdk.CodeNotAuthenticated, "A valid API key is needed: %s: <key>. It is a token of a tenant.", headerAPIKey)
	// errNoAccess does not tell whether there is such a sandbox.
	errNoAccess = sdk.Errorf(sdk.CodeNotAuthenticated, "The access token of the sandbox is needed, as create and connect answer it.")
)

// authenticate finds the tenant: by its API key, or, of what is asked of a sandbox, by the
// sandbox's token. The key is of no use there: clients never send it.
func (d *Door) authenticate(ctx context.Context, h rest.Header) (tenant.Tenant, error) {
	path, query, _ := strings.Cut(h.Target(), "?")
	at, err := d.targetOf(h.Host(), h.Values)
	switch {
	case err != nil:
		return tenant.Tenant{}, err
	case !at.answers(path):
		return tenant.Tenant{}, sdk.Errorf(sdk.CodeNotFound, "There is no such route on port %s.", at.port)
	case !isData(path, at.sandbox != ""):
		if who, known := d.tenants.Authenticate(rest.OnlyOne(rest.BearerTokens(h))); known {
			return who, nil
		}
		return tenant.Tenant{}, errNoKey
	case path == routeFiles && rest.OnlyOne(h.Values(headerAccessToken)) == "":
		return d.authenticateSigned(ctx, at.sandbox, h.Method(), query)
	}
	info, err := d.instances.Named(ctx, at.sandbox)
	if frontdoor.Elsewhere(info, err) {
		return tenant.Tenant{}, err // which knows its tokens
	}
	if info.FrontDoor != Name || isNotFound(err) {
		return tenant.Tenant{}, &sandboxGone{error: noSandbox(), sandbox: frontdoor.Clipped(at.sandbox)}
	}
	access, traffic := rest.OnlyOne(h.Values(headerAccessToken)), rest.OnlyOne(h.Values(headerTrafficToken))
	known := same(access, d.tokens.envd(info.ID))
	if isInterpreter(path) { // some of its calls carry the one, some the other
		known = known || same(traffic, d.tokens.traffic(info.ID))
	}
	if !known {
		return tenant.Tenant{}, errNoAccess
	}
	return d.owner(info)
}

// owner is the tenant whose sandbox it is.
func (d *Door) owner(info instance.Info) (tenant.Tenant, error) {
	if who, known := d.tenants.Tenant(info.ID.Tenant); known {
		return who, nil
	}
	return tenant.Tenant{}, errNoAccess
}

// authenticateSigned is for addresses of files that carry no header: their signature has
// been made with the token of the sandbox, which is looked for among those of the sandbox
// that is named, or, where none is, of all.
func (d *Door) authenticateSigned(ctx context.Context, named, method, rawQuery string) (tenant.Tenant, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil || query.Get("signature") == "" {
		return tenant.Tenant{}, errNoAccess
	}
	if named != "" {
		info, err := d.instances.Named(ctx, named)
		if frontdoor.Elsewhere(info, err) {
			return tenant.Tenant{}, err
		}
		if info.FrontDoor != Name || isNotFound(err) || !d.tokens.signed(info.ID, method, query, time.Now()) {
			return tenant.Tenant{}, errNoAccess
		}
		return d.owner(info)
	}
	if info, ok := d.signer(method, query); ok {
		return d.owner(info)
	}
	return tenant.Tenant{}, errNoAccess
}

// signer is the sandbox with whose token a query was signed. All are tried: an address
// that the SDKs make for a server of one's own names none.
func (d *Door) signer(method string, query url.Values) (instance.Info, bool) {
	now := time.Now()
	for _, info := range d.instances.ListAll("", instance.ListRequest{FrontDoor: Name}).Instances {
		if d.tokens.signed(info.ID, method, query, now) {
			return info, true
		}
	}
	return instance.Info{}, false
}

// signed reports whether the query of an address of a file has the signature of a sandbox,
// and is not too old. E2B's SDKs make it of the path, what is done, the user, the token
// and the end of its validity in seconds.
func (t tokens) signed(id instance.ID, method string, query url.Values, now time.Time) bool {
	operation := "read"
	if method == http.MethodPost {
		operation = "write"
	}
	text := strings.Join([]string{query.Get("path"), operation, query.Get("username"), t.envd(id)}, ":")
	if until := query.Get("signature_expiration"); until != "" {
		seconds, err := strconv.ParseInt(until, 10, 64)
		if err != nil || now.Unix() > seconds {
			return false
		}
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return same(query.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
}

// isData reports whether a path is one of what a sandbox is asked, and not the API about
// sandboxes. One path is in both: /health is the sandbox's if one is named.
func isData(path string, named bool) bool {
	switch path {
	case "/health":
		return named
	case routeFiles, routeCompose, "/envs", "/metrics":
		return true
	}
	return strings.HasPrefix(path, "/process.Process/") || strings.HasPrefix(path, "/filesystem.Filesystem/") || isInterpreter(path)
}

func isInterpreter(path string) bool {
	return path == "/execute" || path == "/contexts" || strings.HasPrefix(path, "/contexts/")
}
