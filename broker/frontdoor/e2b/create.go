package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// How long a sandbox lives whose creator does not say: by the two routes.
const (
	oldTimeout = 15 * time.Second
	newTimeout = 300 * time.Second
)

// maxTimeout is the longest timeout that is understood, in seconds. How long the operator
// lets a sandbox live is less.
const maxTimeout = 10 * 365 * 24 * 3600

// note is what is kept with an instance, to be shown again.
type note struct {
	Template string `json:"template"`
	// Private sandboxes have ports that take their traffic token.
	Private bool `json:"private,omitempty"`
	// AutoResume is whether traffic resumes it.
	AutoResume bool `json:"auto_resume,omitempty"`
}

// alias is the name of its template; one that goes on from a snapshot has none.
func (n note) alias(info instance.Info) string {
	if info.From != "" {
		return ""
	}
	return n.Template
}

func noteOf(info instance.Info) note {
	var n note
	_ = json.Unmarshal([]byte(info.Note), &n) // it is our own
	return n
}

// createBody is the body that makes a sandbox: what is honoured.
type createBody struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *int64            `json:"timeout"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	Secure              *bool             `json:"secure"` // every sandbox is
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             json.RawMessage   `json:"network"`
	AutoPause           bool              `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
}

// honoured are the fields of createBody.
var honoured = []string{"templateID", "timeout", "metadata", "envVars", "secure", "allow_internet_access", "network", "autoPause", "autoPauseMemory", "autoResume"}

// isNothing reports whether a value is as good as absent.
func isNothing(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "false", "{}", "[]", `""`, `{"enabled":false}`:
		return true
	default:
		return false
	}
}

// readCreate reads a request for a sandbox. What cannot be honoured is refused by name,
// before anything is made.
func readCreate(raw []byte, timeout time.Duration, who tenant.Tenant, settings frontdoor.Settings) (instance.CreateRequest, error) {
	var none instance.CreateRequest
	fields, err := objectOf(raw)
	if err != nil {
		return none, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(honoured, name) && !isNothing(fields[name]) {
			return none, refused(frontdoor.Clipped(name), "is not served here, and would change what you get; leave it out")
		}
	}
	var body createBody
	for _, name := range honoured { // one by one, so that a wrong one is told by its name
		if value, given := fields[name]; given {
			one, _ := json.Marshal(map[string]json.RawMessage{name: value})
			if err := json.Unmarshal(one, &body); err != nil {
				return none, refused(name, "is not of the type that the API has for it")
			}
		}
	}
	if body.Timeout != nil {
		if *body.Timeout < 1 || *body.Timeout > maxTimeout {
			return none, refused("timeout", "must be a whole number of seconds, 1 at least")
		}
		timeout = time.Duration(*body.Timeout) * time.Second
	}
	if body.AutoPauseMemory != nil && !*body.AutoPauseMemory {
		return none, refused("autoPauseMemory", "must be true here: a pause keeps what runs")
	}
	private, out, err := readNetwork(body.Network, settings.PublicPorts)
	if err != nil {
		return none, err
	}
	// Older SDKs always send true, so that it says nothing of what the caller needs.
	out.closed = out.closed || body.AllowInternetAccess != nil && !*body.AllowInternetAccess
	asked, err := out.request(who.Network, settings.Network)
	if err != nil {
		return none, err
	}
	template, known := settings.Templates[body.TemplateID]
	switch {
	case body.TemplateID == "":
		return none, refused("templateID", "is required")
	case !known && !isSnapshot(body.TemplateID):
		return none, sdk.Errorf(sdk.CodeNotFound, "The template %s was not found; there are: %s.", frontdoor.Clipped(body.TemplateID), strings.Join(slices.Sorted(maps.Keys(settings.Templates)), ", "))
	}
	kept := note{Template: body.TemplateID, Private: private, AutoResume: body.AutoResume != nil && body.AutoResume.Enabled}
	text, err := rest.EncodeJSON(kept)
	if err != nil {
		return none, err
	}
	env := map[string]string{"E2B_SANDBOX": "true"}
	maps.Copy(env, body.EnvVars)
	capabilities := []sdk.Capability{sdk.CapabilityCommands, sdk.CapabilityFiles}
	if kept.AutoResume {
		capabilities = append(capabilities, sdk.CapabilityPause)
	}
	return instance.CreateRequest{
		Fixed: true, PauseAtEnd: body.AutoPause, FrontDoor: Name, Note: string(text), Template: template, TTL: timeout,
		Env: env, Labels: body.Metadata, Provider: settings.Provider, Wait: settings.Wait,
		Capabilities: capabilities, Network: asked,
	}, nil
}

// readNetwork reads what a creator says of the network: whether ports take a token, and what
// may be reached. public says whether the operator lets them do without.
func readNetwork(raw json.RawMessage, public bool) (private bool, out egress, err error) {
	if isNothing(raw) {
		return false, out, nil
	}
	fields, err := objectOf(raw)
	if err != nil {
		return false, out, refused("network", "is not of the type that the API has for it")
	}
	const traffic = "allowPublicTraffic"
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != traffic && name != fieldAllow && name != fieldDeny && !isNothing(fields[name]) {
			return false, out, refused("network."+frontdoor.Clipped(name), "is not served here, and would change what you get; leave it out")
		}
	}
	var allowed *bool
	if value, given := fields[traffic]; given && json.Unmarshal(value, &allowed) != nil {
		return false, out, refused("network."+traffic, "is not of the type that the API has for it")
	}
	if allowed != nil && *allowed && !public {
		return false, out, refused("network."+traffic, "cannot be true here: the operator has each port take the traffic access token (public_ports)")
	}
	out, err = readEgress(fields, "network.")
	return allowed != nil && !*allowed, out, err
}

// createFor makes a sandbox, which lives as long as is said here unless its creator says.
func (d *Door) createFor(timeout time.Duration) rest.Handler[rest.Raw, sandboxAnswer] {
	return func(ctx context.Context, c rest.Call[rest.Raw]) (int, sandboxAnswer, error) {
		req, err := readCreate(c.Body, timeout, c.Tenant, *d.settings.Load())
		if err == nil {
			err = d.goOn(c.Tenant, &req)
		}
		if err != nil {
			return 0, sandboxAnswer{}, err
		}
		req.Key = c.Key
		info, _, err := d.instances.Create(ctx, c.Tenant, req)
		if err != nil {
			return 0, sandboxAnswer{}, err
		}
		if err := d.furnish(ctx, c.Tenant, info, req.Key != ""); err != nil {
			return 0, sandboxAnswer{}, err
		}
		return http.StatusCreated, d.sandboxOf(info), nil
	}
}

// home is where a sandbox's user is at home, and its programs begin.
const home = "/home/user"

// cleanUpTimeout bounds the ending of what nobody was told of.
const cleanUpTimeout = 30 * time.Second

// furnish sees that there is a home. A sandbox without one is not what was asked for. Of one
// whose client has a key to ask again with, the sandbox stays unless its provider refuses a
// home: as long as it ends, another one would be there beside it.
func (d *Door) furnish(ctx context.Context, who tenant.Tenant, info instance.Info, keyed bool) error {
	err := lending.Use(ctx, d.instances, who, info.ID.String(), sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		_, err := files.StatFile(ctx, instanceID, home)
		if isNotFound(err) {
			_, err = files.MakeDirectory(ctx, instanceID, home, 0o755)
		}
		return err
	})
	refused := slices.Contains([]sdk.Code{sdk.CodeInvalidRequest, sdk.CodeNotSupported, sdk.CodeNotAllowed}, sdk.CodeOf(err))
	if err != nil && (refused || !keyed) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		_ = d.instances.Destroy(ctx, who, info.ID.String()) // what failed first is told
	}
	if err != nil {
		return frontdoor.Resumable{Err: err}
	}
	return nil
}

// controlled is the tenant's sandbox that a path names, by its ID alone or with the client
// that clients of long ago write behind it.
func (d *Door) controlled(ctx context.Context, who tenant.Tenant, name string) (instance.Info, error) {
	id, client, found := strings.Cut(name, "-")
	if found && client != clientID {
		return instance.Info{}, noSandbox()
	}
	return d.sandbox(ctx, who, id)
}
