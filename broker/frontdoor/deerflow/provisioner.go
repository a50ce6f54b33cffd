package deerflow

import (
	"context"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (d *Door) registerProvisioner() {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/health", Public: true, Quiet: true}, d.health)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/api/capabilities", Quiet: true}, d.capabilities)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/api/sandboxes", Resumes: true}, d.create)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/api/sandboxes"}, d.list)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/api/sandboxes/{id}"}, d.get)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: "/api/sandboxes/{id}"}, d.destroy)
}

type health struct {
	Status string `json:"status"`
}

func (d *Door) health(context.Context, rest.Call[rest.None]) (int, health, error) {
	return http.StatusOK, health{"ok"}, nil
}

// capabilities are images that the original provisioner may have, and this one has not.
type capabilities struct {
	Init   bool `json:"lark_cli_init_image"`
	Broker bool `json:"lark_cli_broker_image"`
}

func (d *Door) capabilities(context.Context, rest.Call[rest.None]) (int, capabilities, error) {
	return http.StatusOK, capabilities{}, nil
}

// sandbox is one as the client sees it.
type sandbox struct {
	ID     string `json:"sandbox_id"`
	URL    string `json:"sandbox_url"`
	Status string `json:"status"`
	// Ignored names what was asked for and has no effect.
	Ignored []string `json:"ignored,omitempty"`
}

// The statuses, which are phases of pods. Clients make a sandbox anew unless it runs.
const (
	statusRunning = "Running"
	statusPaused  = "Pending"
	statusUnknown = "Unknown"
)

func (d *Door) shown(c call, info instance.Info) sandbox {
	s := sandbox{ID: info.ID.Session, URL: d.url(c, info), Status: statusRunning}
	if info.Paused {
		s.Status = statusPaused
	}
	return s
}

var (
	sandboxID = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	threadID  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	userID    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,200}$`)
)

// mount is a directory of the gateway's host that a client wants in the sandbox.
type mount struct {
	HostPath      string `json:"host_path"`
	ContainerPath string `json:"container_path"`
	ReadOnly      bool   `json:"read_only"`
}

// maxMounts is how many may be asked for.
const maxMounts = 10

// mountPoints are the places in a sandbox for which clients have directories.
var mountPoints = []string{
	"/mnt/acp-workspace", "/mnt/skills/custom", "/mnt/skills/integrations",
	"/mnt/integrations/lark-cli/config", "/mnt/integrations/lark-cli/config/locks",
	"/mnt/integrations/lark-cli/data", "/mnt/integrations/lark-cli/runtime",
}

// creation is what a client asks for.
type creation struct {
	id, thread, user string
	mounts           []mount
}

// readCreate reads a request for a sandbox. Fields that are not known are ignored, as by
// the original.
func readCreate(body []byte) (creation, error) {
	f, err := readFields(body)
	if err != nil {
		return creation{}, err
	}
	req := creation{user: "default"}
	var legacy, runtime, broker bool // nothing here has anything to do with them
	err = f.read(map[string]any{
		"sandbox_id": &req.id, "thread_id": &req.thread, "user_id": &req.user, "extra_mounts": &req.mounts,
		"include_legacy_skills": &legacy, "provision_lark_cli_runtime": &runtime, "provision_lark_cli_broker": &broker,
	}, "sandbox_id")
	if err != nil {
		return creation{}, err
	}
	var faults frontdoor.Faults
	for _, field := range []struct {
		name, value string
		form        *regexp.Regexp
	}{{"sandbox_id", req.id, sandboxID}, {"thread_id", req.thread, threadID}, {"user_id", req.user, userID}} {
		if !field.form.MatchString(field.value) && !f.empty(field.name) {
			faults.Add("string_pattern_mismatch", field.name, "String should match pattern '"+field.form.String()+"'")
		}
	}
	if len(faults) > 0 {
		return creation{}, faults
	}
	return req, checkMounts(req.mounts)
}

// checkMounts refuses what the original refuses too.
func checkMounts(mounts []mount) error {
	if len(mounts) > maxMounts {
		return badMount("At most %d extra mounts are allowed.", maxMounts)
	}
	seen := map[string]bool{}
	for _, m := range mounts {
		switch {
		case !slices.Contains(mountPoints, m.ContainerPath):
			return badMount("An extra mount is not allowed at this container_path.")
		case seen[m.ContainerPath]:
			return badMount("There are two extra mounts at %s.", m.ContainerPath)
		case !path.IsAbs(m.HostPath) || path.Clean(m.HostPath) != m.HostPath:
			return badMount("The host_path of an extra mount must be absolute, without . and .. in it.")
		}
		seen[m.ContainerPath] = true
	}
	return nil
}

func badMount(format string, args ...any) error {
	return rest.BadRequest(http.StatusBadRequest, sdk.Errorf(sdk.CodeInvalidRequest, format, args...).Message)
}

// create makes the sandbox of an ID unless it is there. Of several at once one makes it,
// and all get the same answer.
func (d *Door) create(ctx context.Context, c rest.Call[rest.Raw]) (int, sandbox, error) {
	req, err := readCreate(c.Body)
	if err != nil {
		return 0, sandbox{}, err
	}
	info, err := d.ready(ctx, c.Tenant, req)
	if err != nil {
		return 0, sandbox{}, frontdoor.Resumable{Err: err}
	}
	answer := d.shown(callOf(c), info)
	if len(req.mounts) > 0 {
		// Nothing of the host of a gateway is on that of a sandbox.
		d.logger.Warn("extra mounts are not served", "tenant", c.Tenant.Name, "instance", info.ID.String(), "mounts", len(req.mounts))
		answer.Ignored = []string{"extra_mounts"}
	}
	return http.StatusOK, answer, nil
}

// ready returns a sandbox that can be used. One that is there and cannot, since its provider
// has lost it, is ended, and another one made. One in trouble that may pass is left as it
// is, also if it has just been made: another gateway may have got it in the meantime.
func (d *Door) ready(ctx context.Context, who tenant.Tenant, req creation) (instance.Info, error) {
	for again := true; ; again = false {
		info, created, err := d.obtain(ctx, who, req)
		if err != nil {
			return instance.Info{}, err
		}
		if info.Paused {
			info, err = d.instances.Resume(ctx, who, info.ID.String())
		}
		if err == nil {
			err = d.furnish(ctx, who, info)
		}
		if err == nil {
			return info, nil
		}
		lost, useless := isNotFound(d.doubt(ctx, who, info, err)), created && sdk.CodeOf(err) == sdk.CodeNotSupported
		if !lost && !useless {
			return instance.Info{}, err
		}
		cleanUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		ending := d.instances.Destroy(cleanUp, who, info.ID.String()) // what failed first is told
		cancel()
		if useless || !again || ending != nil && !isNotFound(ending) {
			return instance.Info{}, err
		}
	}
}

// doubt returns what it means that a sandbox was asked for something that cannot fail, and
// that this did: it is lost, which its provider knows, or is in trouble that may pass.
func (d *Door) doubt(ctx context.Context, who tenant.Tenant, info instance.Info, failure error) error {
	if isNotFound(failure) || ctx.Err() != nil {
		return failure
	}
	if err := d.instances.Confirm(ctx, who, info.ID.String()); isNotFound(err) {
		return err
	}
	return failure
}

func (d *Door) obtain(ctx context.Context, who tenant.Tenant, req creation) (instance.Info, bool, error) {
	info, ok, err := d.known(ctx, who, req.id, createPatience)
	if ok || err != nil { // whatever the settings were when it was made
		return info, false, err
	}
	settings := d.settings.Load()
	labels := map[string]string{"user_id": req.user}
	if req.thread != "" {
		labels["thread_id"] = req.thread
	}
	info, created, err := d.instances.Create(ctx, who, instance.CreateRequest{
		Session: req.id, FrontDoor: Name, TTL: settings.Lease, Labels: labels,
		Template: settings.Template, Provider: settings.Provider, Wait: settings.Wait,
		Capabilities: []sdk.Capability{sdk.CapabilityCommands, sdk.CapabilityFiles},
	})
	if err == nil && info.FrontDoor != Name {
		err = sdk.Errorf(sdk.CodeConflict, "The tenant has a session of this name that was not made by this API.")
	}
	return info, created, err
}

const (
	// userData is what paths of DeerFlow begin with, in commands too, and workspace where its
	// commands begin.
	userData  = "/mnt/user-data"
	workspace = userData + "/workspace"
	outputs   = userData + "/outputs"
	// furnishTimeout bounds the making of the directories, and cleanUpTimeout the ending of
	// what nobody was told of.
	furnishTimeout = 30 * time.Second
	cleanUpTimeout = 30 * time.Second
)

// directories makes those that DeerFlow knows, outputs as the last one. Where the user of the sandbox may not make
// them, sudo may.
const directories = `set -- ` + workspace + ` ` + userData + `/uploads ` + outputs + `
mkdir -p "$@" 2>/dev/null || sudo -n sh -c 'u=$1; shift; mkdir -p "$@" && chown "$u" "$@"' sh "$(id -u)" "$@" 2>/dev/null
for d; do test -w "$d" || exit 1; done`

// furnish sees that the directories are there. A sandbox without them is not what was asked
// for. It does so also if the client leaves: another one may have got the same sandbox.
func (d *Door) furnish(ctx context.Context, who tenant.Tenant, info instance.Info) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), furnishTimeout)
	defer cancel()
	return lending.WithCommands(ctx, d.instances, who, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		command, _, err := commands.Run(ctx, sdk.CommandRequest{Argv: []string{"bash", "-c", directories}}, nil)
		if err == nil && command.State != sdk.CommandSucceeded {
			err = sdk.Errorf(sdk.CodeNotSupported, "The sandboxes of this provider cannot have %s.", userData)
		}
		return err
	})
}

// sandboxIn is the ID in a path.
func sandboxIn(path map[string]string) (string, error) {
	if !sandboxID.MatchString(path["id"]) {
		return "", frontdoor.Faults{{Type: "string_pattern_mismatch", Loc: []any{"path", "sandbox_id"}, Msg: "String should match pattern '" + sandboxID.String() + "'"}}
	}
	return path["id"], nil
}

// get answers whoever looks for a sandbox, or whether it lives. That it is asked for keeps
// it. Clients use what they find at once, and make anew what they do not find: so one whose
// directories are not there yet is not found.
func (d *Door) get(ctx context.Context, c rest.Call[rest.None]) (int, sandbox, error) {
	id, err := sandboxIn(c.Path)
	if err != nil {
		return 0, sandbox{}, err
	}
	info, ok, err := d.known(ctx, c.Tenant, id, patience)
	if err != nil {
		return 0, sandbox{}, err
	}
	if !ok {
		return 0, sandbox{}, errGone
	}
	if info, err = d.instances.Renew(ctx, c.Tenant, info.ID.String(), 0); err != nil {
		return 0, sandbox{}, err
	}
	if info.Paused {
		return http.StatusOK, d.shown(callOf(c), info), nil
	}
	// The provider may know that it has ended before the broker does.
	asking, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	err = lending.Use(asking, d.instances, c.Tenant, info.ID.String(), sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		_, err := files.StatFile(ctx, instanceID, outputs)
		return err
	})
	switch {
	case err == nil:
		return http.StatusOK, d.shown(callOf(c), info), nil
	case lending.RanOut(ctx, asking, err):
		return 0, sandbox{}, errNoAnswer
	case isNotFound(d.doubt(asking, c.Tenant, info, err)):
		return 0, sandbox{}, errGone
	}
	return 0, sandbox{}, err
}

// errNoAnswer is for a sandbox that may be there, and does not say so.
var errNoAnswer = sdk.Errorf(sdk.CodeUnavailable, "The sandbox does not answer.")

type sandboxList struct {
	Sandboxes []sandbox `json:"sandboxes"`
	Count     int       `json:"count"`
}

// list shows also those of which nobody knows yet, after a restart, whether they are there:
// clients adopt what is listed when they start, and end it when they do not need it.
func (d *Door) list(ctx context.Context, c rest.Call[rest.None]) (int, sandboxList, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer := sandboxList{Sandboxes: []sandbox{}}
	unknown, err := d.instances.SettledEverywhere(waiting, c.Tenant, Name)
	if err != nil {
		return 0, sandboxList{}, err
	}
	page, err := d.instances.ListEverywhere(ctx, c.Tenant, instance.ListRequest{FrontDoor: Name})
	if err != nil {
		return 0, sandboxList{}, err
	}
	seen := map[instance.ID]bool{}
	for _, info := range page.Instances {
		seen[info.ID] = true
		answer.Sandboxes = append(answer.Sandboxes, d.shown(callOf(c), info))
	}
	for _, info := range unknown {
		if !seen[info.ID] {
			one := d.shown(callOf(c), info)
			one.Status = statusUnknown
			answer.Sandboxes = append(answer.Sandboxes, one)
		}
	}
	answer.Count = len(answer.Sandboxes)
	return http.StatusOK, answer, nil
}

type deleted struct {
	OK bool   `json:"ok"`
	ID string `json:"sandbox_id"`
}

// destroy ends a sandbox. One that is not there has ended already.
func (d *Door) destroy(ctx context.Context, c rest.Call[rest.Raw]) (int, deleted, error) {
	id, err := sandboxIn(c.Path)
	if err != nil {
		return 0, deleted{}, err
	}
	if _, _, err := d.known(ctx, c.Tenant, id, patience); err != nil {
		return 0, deleted{}, err
	}
	// One whose end could not be confirmed is there still, though nobody finds it.
	for _, info := range d.instances.List(c.Tenant, instance.ListRequest{Session: id, FrontDoor: Name, Ending: true}).Instances {
		if err := d.instances.Destroy(ctx, c.Tenant, info.ID.String()); err != nil && !isNotFound(err) {
			return 0, deleted{}, err
		}
	}
	return http.StatusOK, deleted{true, id}, nil
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
