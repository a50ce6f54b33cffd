package daytonafake

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

var (
	minutes = shape.Whole{Max: math.MaxInt32}
	amount  = shape.Whole{Min: 1, Max: math.MaxInt32}
	texts   = shape.Map{Of: shape.Text{}}

	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	nameForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$`)
	domainForm   = regexp.MustCompile(`^(\*\.)?([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,}$`)
	// An image has a tag, and not the one that moves.
	imageForm = regexp.MustCompile(`^FROM ([^\s:@]+(:[0-9]+/[^\s:@]+)?)(:([\w.-]+)|@sha256:[0-9a-f]{64})\n`)

	limits = map[string]shape.Shape{"networkBlockAll": shape.Flag{}, "networkAllowList": shape.Text{}, "domainAllowList": shape.Text{}}

	// frozenSandbox is what the API of v0.190.0 takes, newSandbox what came later too.
	frozenSandbox = shape.Object{Optional: map[string]shape.Shape{
		"name": shape.Text{Form: nameForm}, "snapshot": shape.Text{Form: regexp.MustCompile(`\S`)}, "user": shape.Text{},
		"env": shape.Map{Of: shape.Text{}, Names: variableForm}, "labels": texts, "public": shape.Flag{}, "target": shape.Text{},
		"networkBlockAll": shape.Flag{}, "networkAllowList": shape.Text{}, "domainAllowList": shape.Text{},
		"cpu": amount, "memory": amount, "disk": amount, "gpu": shape.Lacking{}, "gpuType": shape.Lacking{},
		"autoStopInterval": minutes, "autoArchiveInterval": minutes, "autoDeleteInterval": shape.Whole{Min: -1, Max: math.MaxInt32},
		"volumes": shape.Lacking{}, "buildInfo": shape.Object{
			Needed:   map[string]shape.Shape{"dockerfileContent": shape.Text{Form: imageForm}},
			Optional: map[string]shape.Shape{"contextHashes": shape.List{Of: shape.Text{}}},
		},
	}}
	newSandbox = shape.Object{Optional: with(frozenSandbox.Optional, map[string]shape.Shape{
		"autoPauseInterval": minutes, "ttlMinutes": minutes, "secrets": shape.Lacking{}, "linkedSandbox": shape.Lacking{},
		"spot": shape.Lacking{}, "outboundProxyUrl": shape.Lacking{}, "otelEndpointOverride": shape.Lacking{},
	})}
)

func with(a, b map[string]shape.Shape) map[string]shape.Shape {
	all := map[string]shape.Shape{}
	for _, m := range []map[string]shape.Shape{a, b} {
		for name, s := range m {
			all[name] = s
		}
	}
	return all
}

// creation is the body of a request for a sandbox.
type creation struct {
	Name, Snapshot, User, Target string
	Env, Labels                  map[string]string
	Public                       bool
	CPU, Memory, Disk            int
	AutoStopInterval             *int
	AutoPauseInterval            int
	AutoArchiveInterval          *int
	AutoDeleteInterval           *int
	TTLMinutes                   int
	BuildInfo                    *struct{ DockerfileContent string }
	network
}

// regions are those that there are; the first is the default.
var regions = []string{"us", "eu"}

// most is what one sandbox may have, and usual what it has unless it asks.
var (
	most  = size{CPU: 4, Memory: 8, Disk: 10}
	usual = size{CPU: 1, Memory: 1, Disk: 3}
)

// problem says what a schema cannot.
func (c *creation) problem(o Options) string {
	sized := c.CPU+c.Memory+c.Disk > 0
	asked := size{c.CPU, c.Memory, c.Disk}
	switch {
	case c.Snapshot != "" && c.BuildInfo != nil:
		return "Cannot specify a snapshot when using a build info entry"
	case sized && c.BuildInfo == nil:
		return "Cannot specify Sandbox resources when using a snapshot"
	case c.BuildInfo != nil && strings.HasSuffix(imageForm.FindStringSubmatch(c.BuildInfo.DockerfileContent)[3], ":latest"):
		return "Images with tag \":latest\" are not allowed"
	case c.AutoPauseInterval > 0 && c.AutoStopInterval != nil && *c.AutoStopInterval > 0:
		return "autoStopInterval and autoPauseInterval are mutually exclusive"
	case c.AutoPauseInterval > 0 && o.Class == containerClass:
		return "Sandboxes of this class cannot be paused"
	case c.AutoPauseInterval > 0 && c.AutoDeleteInterval != nil && *c.AutoDeleteInterval == 0:
		return "Ephemeral sandboxes cannot have auto-pause enabled"
	}
	if text := asked.problem(); text != "" {
		return text
	}
	return c.network.problem()
}

func (s size) problem() string {
	switch {
	case s.CPU > most.CPU:
		return fmt.Sprintf("CPU request %d exceeds maximum allowed per sandbox (%d)", s.CPU, most.CPU)
	case s.Memory > most.Memory:
		return fmt.Sprintf("Memory request %dGB exceeds maximum allowed per sandbox (%dGB)", s.Memory, most.Memory)
	case s.Disk > most.Disk:
		return fmt.Sprintf("Disk request %dGB exceeds maximum allowed per sandbox (%dGB)", s.Disk, most.Disk)
	}
	return ""
}

// mostNetworks is how many an allow list may have.
const mostNetworks = 10

func (n network) problem() string {
	if n.NetworkBlockAll && n.NetworkAllowList+n.DomainAllowList != "" {
		return "networkBlockAll and allow lists exclude each other"
	}
	for list, good := range map[string]func(string) bool{
		n.NetworkAllowList: func(entry string) bool {
			p, err := netip.ParsePrefix(entry)
			return err == nil && p.Addr().Is4() && p == p.Masked()
		},
		n.DomainAllowList: domainForm.MatchString,
	} {
		entries := strings.Split(list, ",")
		if list == "" {
			continue
		}
		if len(entries) > mostNetworks {
			return fmt.Sprintf("at most %d networks are allowed", mostNetworks)
		}
		for _, entry := range entries {
			if !good(strings.TrimSpace(entry)) {
				return fmt.Sprintf("Invalid network or domain: %q", entry)
			}
		}
	}
	return ""
}
