package opensandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// image names what a sandbox is made of.
type image struct {
	URI string `json:"uri"`
}

// note is what is kept with an instance, to be shown again.
type note struct {
	Image      string   `json:"image"`
	Snapshot   string   `json:"snapshot,omitempty"`
	Entrypoint []string `json:"entrypoint"`
}

func noteOf(info instance.Info) note {
	var n note
	_ = json.Unmarshal([]byte(info.Note), &n) // it is our own
	if n.Entrypoint == nil {
		n.Entrypoint = slices.Clone(idle)
	}
	return n
}

// idle is the entrypoint of a sandbox that does nothing by itself. The SDKs send it unless
// they are told something else, and there is nothing to be started for it.
var idle = []string{"tail", "-f", "/dev/null"}

// interpreter is the entrypoint that the guides of OpenSandbox's code interpreter name: it
// starts the server of contexts in that image. What this would serve, the door serves.
var interpreter = []string{"/opt/opensandbox/code-interpreter.sh"}

// creation is what a client has asked for.
type creation struct {
	instance instance.CreateRequest
	// tenant is what the operator lets sandboxes of the tenant reach.
	tenant *sdk.NetworkPolicy
	// snapshot that the sandbox goes on from; empty for none.
	snapshot string
	// entrypoint to start; nil for none.
	entrypoint []string
}

// minTimeout is the shortest life that a client may ask for.
const minTimeout = time.Minute

// Bounds of an entrypoint.
const (
	maxEntrypoint      = 256
	maxEntrypointBytes = 4 << 10
)

// createBody is the body of POST /v1/sandboxes: what is honoured, and what is refused
// unless it is as good as absent. SDKs send empty values for much of it.
type createBody struct {
	Image *struct {
		URI  string          `json:"uri"`
		Auth json.RawMessage `json:"auth"`
	} `json:"image"`
	SnapshotID     string             `json:"snapshotId"`
	Entrypoint     []string           `json:"entrypoint"`
	Timeout        *json.Number       `json:"timeout"`
	ResourceLimits map[string]string  `json:"resourceLimits"`
	Env            map[string]*string `json:"env"`
	Metadata       map[string]string  `json:"metadata"`
	NetworkPolicy  *networkPolicy     `json:"networkPolicy"`
	SecureAccess   bool               `json:"secureAccess"` // every sandbox's ports take its token
	Platform       *struct {
		OS   string `json:"os"`
		Arch string `json:"arch"`
	} `json:"platform"`
}

// honoured are the fields of createBody.
var honoured = []string{"image", "snapshotId", "entrypoint", "timeout", "resourceLimits", "env", "metadata", "networkPolicy", "secureAccess", "platform"}

// readCreate reads a request for a sandbox. What cannot be honoured is refused by name,
// before anything is made.
func (d *Door) readCreate(raw []byte, who tenant.Tenant, settings frontdoor.Settings) (creation, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return creation{}, sdk.Errorf(sdk.CodeInvalidRequest, "The body must be a JSON object.")
	}
	if name := unknownField(raw, reflect.TypeFor[createBody]()); name != "" {
		return creation{}, notServed(name)
	}
	var body createBody
	for _, name := range honoured { // one by one, so that a wrong one is told by its name
		if value, given := fields[name]; given {
			one, _ := json.Marshal(map[string]json.RawMessage{name: value})
			if err := json.Unmarshal(one, &body); err != nil {
				return creation{}, refused(name, "is not of the type that the API has for it")
			}
		}
	}
	req := creation{tenant: who.Network, instance: instance.CreateRequest{Fixed: true, FrontDoor: Name, Labels: body.Metadata, Env: map[string]string{}}}
	for name, value := range body.Env {
		if value != nil {
			req.instance.Env[name] = *value
		}
	}
	for _, step := range []func(createBody, frontdoor.Settings, *creation) error{
		readImage, readTimeout, readEntrypoint, readResources, readNetworkPolicy, readPlatform,
	} {
		if err := step(body, settings, &req); err != nil {
			return creation{}, err
		}
	}
	if err := checkMetadata(body.Metadata); err != nil {
		return creation{}, err
	}
	n := note{Snapshot: body.SnapshotID, Entrypoint: body.Entrypoint}
	if body.Image != nil {
		n.Image = body.Image.URI
	}
	if n.Entrypoint == nil {
		n.Entrypoint = idle
	}
	text, err := json.Marshal(n)
	if err != nil {
		return creation{}, err
	}
	req.instance.Note = string(text)
	return req, nil
}

// isNothing reports whether a value is as good as absent.
func isNothing(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "null", "false", "{}", "[]", `""`, `{"enabled":false}`:
		return true
	default:
		return false
	}
}

// readImage finds the template that the operator gives for an image. There is no default:
// what is run in something else than it was asked for may do something else. What goes on
// from a snapshot is made of what that was made of.
func readImage(body createBody, settings frontdoor.Settings, req *creation) error {
	given := body.Image != nil && body.Image.URI != ""
	switch {
	case given && body.SnapshotID != "":
		return refused("snapshotId", "cannot be given with an image: one of the two says what the sandbox is made of")
	case body.SnapshotID != "":
		req.snapshot = body.SnapshotID
		return nil
	case !given:
		return refused("image.uri", "is required, or a snapshotId")
	case !isNothing(body.Image.Auth) && len(body.Image.Auth) > 0:
		return refused("image.auth", "is not served here: which images there are is the operator's")
	}
	template, known := settings.Images[body.Image.URI]
	if !known {
		return refused("image.uri", "names no image that there is here; there are: %s", listed(slices.Sorted(maps.Keys(settings.Images))))
	}
	req.instance.Template = template
	return nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none (the operator names them in the block front_door, by images)"
	}
	return strings.Join(names, ", ")
}

// readTimeout reads how long the sandbox lives. Without a timeout it lives as long as the
// operator lets it: the answer says until when.
func readTimeout(body createBody, _ frontdoor.Settings, req *creation) error {
	if body.Timeout == nil {
		return nil
	}
	seconds, err := body.Timeout.Int64()
	if err != nil || seconds < int64(minTimeout/time.Second) || seconds > int64(maxTimeout/time.Second) {
		return refused("timeout", "must be a whole number of seconds, %g at least", minTimeout.Seconds())
	}
	req.instance.TTL = time.Duration(seconds) * time.Second
	return nil
}

// maxTimeout is what a duration holds. How long the operator lets a sandbox live is less.
const maxTimeout = 10 * 365 * 24 * time.Hour

func readEntrypoint(body createBody, _ frontdoor.Settings, req *creation) error {
	if body.Entrypoint == nil || slices.Equal(body.Entrypoint, idle) || slices.Equal(body.Entrypoint, interpreter) {
		return nil
	}
	size := 0
	for _, argument := range body.Entrypoint {
		size += len(argument)
	}
	switch {
	case len(body.Entrypoint) == 0 || body.Entrypoint[0] == "":
		return refused("entrypoint", "must name a program")
	case len(body.Entrypoint) > maxEntrypoint || size > maxEntrypointBytes:
		return refused("entrypoint", "must have at most %d arguments and %d bytes; put a longer program into a file", maxEntrypoint, maxEntrypointBytes)
	}
	req.entrypoint = body.Entrypoint
	req.instance.Capabilities = append(req.instance.Capabilities, sdk.CapabilityCommands)
	return nil
}

var (
	quantity = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,9})?(m|k|K|M|G|T|Ki|Mi|Gi|Ti)?$`)
	// SDKs send a limit of their own unless they are told another, so that it says nothing
	// of what the caller needs: the sizes of sandboxes are the operator's.
	ownSizes = []string{"cpu", "memory"}
)

func readResources(body createBody, _ frontdoor.Settings, _ *creation) error {
	for _, name := range slices.Sorted(maps.Keys(body.ResourceLimits)) {
		switch {
		case !slices.Contains(ownSizes, name):
			return refused("resourceLimits."+frontdoor.Clipped(name), "is not served here; there are cpu and memory")
		case !quantity.MatchString(body.ResourceLimits[name]):
			return refused("resourceLimits."+name, "must be a quantity such as 500m or 512Mi")
		}
	}
	return nil
}

func readPlatform(body createBody, _ frontdoor.Settings, _ *creation) error {
	p := body.Platform
	if p == nil || (p.OS == "" || p.OS == "linux") && (p.Arch == "" || p.Arch == runtime.GOARCH) {
		return nil
	}
	return refused("platform", "cannot be had here: there is linux on %s", runtime.GOARCH)
}

// reservedPrefix begins the names of metadata that only OpenSandbox's own servers give.
const reservedPrefix = "opensandbox.io/"

var metadataValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)

// checkMetadata checks what the instance's own check lets pass: Kubernetes' rules for
// labels, which clients can count on.
func checkMetadata(metadata map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		switch {
		case strings.HasPrefix(name, reservedPrefix):
			return refused("metadata."+frontdoor.Clipped(name), "begins with %s, which is reserved", reservedPrefix)
		case !metadataValue.MatchString(metadata[name]):
			return refused("metadata."+frontdoor.Clipped(name), "must have at most 63 of A-Z a-z 0-9 _ . - and begin and end with a letter or digit")
		}
	}
	return nil
}

// startEntrypoint starts the program that a sandbox was made for. Its end does not end the
// sandbox. A sandbox without it is not what was asked for. One that was there, because its
// creation was cut off and is asked for again, may have it. Of one whose client has a key
// to ask again with, the sandbox stays unless the program is refused: another sandbox would
// have the program run a second time, or be there beside this one.
func (d *Door) startEntrypoint(ctx context.Context, who tenant.Tenant, info instance.Info, created, keyed bool, argv []string) error {
	if argv == nil {
		return nil
	}
	useless := created
	err := lending.WithCommands(ctx, d.instances, who, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		if !created {
			started, err := commands.List(ctx)
			if err != nil || slices.ContainsFunc(started, func(c sdk.Command) bool { return slices.Equal(c.Argv, argv) }) {
				return err
			}
		}
		useless = true
		_, err := commands.Start(ctx, sdk.CommandRequest{Argv: argv}, lending.StartOptions{})
		return err
	})
	refused := slices.Contains([]sdk.Code{sdk.CodeInvalidRequest, sdk.CodeNotSupported, sdk.CodeNotAllowed}, sdk.CodeOf(err))
	if err != nil && useless && (refused || !keyed) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		_ = d.instances.Destroy(ctx, who, info.ID.String()) // what failed first is told
	}
	if err != nil {
		return frontdoor.Resumable{Err: err}
	}
	return nil
}

// cleanUpTimeout bounds the ending of what nobody was told of.
const cleanUpTimeout = 30 * time.Second
