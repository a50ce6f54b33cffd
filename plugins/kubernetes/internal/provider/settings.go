package provider

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpolicy"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// settings are those of a provider block.
type settings struct {
	Kubeconfig    string        `config:"kubeconfig"`
	Context       string        `config:"context"`
	Namespace     string        `config:"namespace"`
	Mode          string        `config:"mode"`
	Reach         string        `config:"reach"`
	Port          int64         `config:"port"`
	Secret        string        `config:"secret"`
	CreateTimeout time.Duration `config:"create_timeout"`

	Image           string            `config:"image"`
	GuestImage      string            `config:"guest_image"`
	PullPolicy      string            `config:"image_pull_policy"`
	PullSecrets     []string          `config:"image_pull_secrets"`
	RuntimeClass    string            `config:"runtime_class"`
	Kernel          string            `config:"kernel"`
	ServiceAccount  string            `config:"service_account"`
	NodeSelector    map[string]string `config:"node_selector"`
	Tolerations     []toleration      `config:"toleration"`
	Network         string            `config:"network"`
	MemoryMB        int64             `config:"memory_mb"`
	CPUs            float64           `config:"cpus"`
	MemoryRequestMB int64             `config:"memory_request_mb"`
	CPURequest      float64           `config:"cpu_request"`
	WorkspaceMB     int64             `config:"workspace_mb"`
	Processes       int64             `config:"processes"`

	PoolSize     int64         `config:"pool_size"`
	MaxSandboxes int64         `config:"max_sandboxes"`
	QueueTimeout time.Duration `config:"queue_timeout"`
	MaxAge       time.Duration `config:"max_age"`

	AbandonedAfter time.Duration `config:"abandoned_after"`

	Net network `config:",squash"`

	Packages guestpackages.Settings `config:",squash"`

	Policy guestpolicy.Settings `config:",squash"`
}

// toleration is a taint of nodes that pods may come to nevertheless.
type toleration struct {
	Key    string `config:"key"`
	Value  string `config:"value"`
	Effect string `config:"effect"`
}

// How the plugin reaches the guest of a pod.
const (
	reachPod = "pod"
	reachAPI = "api"
)

// Whose kernel the code in a pod speaks to.
const (
	kernelOwn    = "own"
	kernelShared = "shared"
)

// What the code in a pod can reach.
const (
	networkNone = "none"
	networkPod  = "pod"
)

// nameForm is what Kubernetes takes for a name in most places.
const nameForm = `[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?`

func schema() sdk.Schema {
	return append(sdk.Schema{
		{
			Name: "kubeconfig", Type: sdk.TypeString, FileOnly: true, Default: "", Pattern: `(/.*)?`, Label: "kubeconfig",
			Description: "The file that says where the cluster is and who this broker is there. Without it, the broker is in a pod of the cluster and is that pod's service account.", Placeholder: "/etc/sandbox-broker/kubeconfig",
		},
		{Name: "context", Type: sdk.TypeString, FileOnly: true, Default: "", Label: "Context", Description: "The context of the kubeconfig to use. Without it, the file's current one."},
		{
			Name: "namespace", Type: sdk.TypeString, FileOnly: true, Required: true, Pattern: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`, Label: "Namespace",
			Description: "Where the pods are made. Nothing else should be in it: who may read or make pods there may use what is in the sandboxes.", Placeholder: "sandboxes",
		},
		{
			Name: "mode", Type: sdk.TypeString, FileOnly: true, Default: modeAuto, Options: []string{modeAuto, modePods, modeAgentSandbox}, Label: "Mode",
			Description: "Who makes the pods and keeps them ready. pods: this broker. agent-sandbox: the controller of that name, which the cluster must have from v0.5 on, with its extensions. auto: the latter where the cluster has it and this account may use it.",
		},
		{
			Name: "image", Type: sdk.TypeString, FileOnly: true, Required: true, Min: sdk.Bound(1), Label: "Image",
			Description: "The image of the sandboxes. It must have python3 for Python, node for JavaScript and bash for Bash; `make rootfs` makes one.", Placeholder: "registry.example.com/sandbox-rootfs:1",
		},
		{
			Name: "guest_image", Type: sdk.TypeString, FileOnly: true, Default: "", Label: "Guest image",
			Description: "An image with sandbox-guest at /sandbox-guest, and nothing else needed. Without it, the image of the sandboxes has it at /opt/sandbox/guest. It must be of the same build as this plugin.", Placeholder: "registry.example.com/sandbox-guest:1",
		},
		{
			Name: "image_pull_policy", Type: sdk.TypeString, Default: "IfNotPresent", Options: []string{"IfNotPresent", "Always", "Never"}, Label: "Pull policy",
			Description: "When nodes pull the images.",
		},
		{Name: "image_pull_secrets", Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(10), Label: "Pull secrets", Description: "Secrets of the namespace by which nodes may pull the images."},
		{
			Name: "runtime_class", Type: sdk.TypeString, FileOnly: true, Default: "gvisor", Pattern: `(` + nameForm + `)?`, Label: "Runtime class",
			Description: "The RuntimeClass of the pods: that of gVisor, or of Kata Containers. Pods are refused where the cluster does not have it. Empty for the nodes' usual runtime, with kernel = \"shared\" alone.",
		},
		{
			Name: "kernel", Type: sdk.TypeString, FileOnly: true, Default: kernelOwn, Options: []string{kernelOwn, kernelShared}, Label: "Kernel",
			Description: "own: the runtime class gives each pod a kernel of its own. shared: the code speaks to the node's kernel, a hole in which is a hole in the sandbox; a warning says so.",
		},
		{Name: "service_account", Type: sdk.TypeString, FileOnly: true, Default: "", Pattern: `(` + nameForm + `)?`, Label: "Service account", Description: "The service account of the pods, which get no token of it. It should have no rights."},
		{Name: "node_selector", Type: sdk.TypeMap, Default: map[string]string{}, Max: sdk.Bound(20), Label: "Node selector", Description: "Labels of the nodes where pods may be."},
		{
			Name: "toleration", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(20), Label: "Toleration", Description: "A taint of nodes where pods may be nevertheless.",
			Fields: sdk.Schema{
				{Name: "key", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1), Label: "Key", Description: "Of the taint."},
				{Name: "value", Type: sdk.TypeString, Default: "", Label: "Value", Description: "Of the taint; empty for any."},
				{Name: "effect", Type: sdk.TypeString, Default: "", Options: []string{"", "NoSchedule", "NoExecute", "PreferNoSchedule"}, Label: "Effect", Description: "Of the taint; empty for any."},
			},
		},
		{
			Name: "network", Type: sdk.TypeString, FileOnly: true, Default: networkNone, Options: []string{networkNone, networkPod}, Label: "Network",
			Description: "none: the code in a sandbox reaches nothing, whatever network policies there are; packages come by way of the plugin. pod: it has the pod's network, as far as a policy lets it that the plugin makes; see egress.",
		},
		{
			Name: "reach", Type: sdk.TypeString, FileOnly: true, Default: reachPod, Options: []string{reachPod, reachAPI}, Label: "Way to the pods",
			Description: "pod: the plugin connects to the address of a pod. api: all goes through the API server, for a broker outside of the cluster; it is slower, and loads the API server.",
		},
		{Name: "port", Type: sdk.TypeInteger, Default: 8077, Min: sdk.Bound(1024), Max: sdk.Bound(65535), Label: "Port", Description: "The port of the pods at which the plugin is answered. Nobody without a credential for the pod is."},
		{
			Name: "secret", Type: sdk.TypeString, Secret: true, FileOnly: true, Label: "Secret",
			Description: "What the key is made from that signs credentials for pods, at least 32 characters. Without it, one is made and kept in the state directory, without which no later broker reaches the pods of this one.", Placeholder: `env("KUBERNETES_GUEST_SECRET")`,
		},
		{
			Name: "memory_mb", Type: sdk.TypeInteger, Default: 512, Min: sdk.Bound(64), Max: sdk.Bound(1 << 20),
			Label: "Memory (MiB)", Description: "What the programs in one sandbox may use together, files in /workspace and /tmp included. The pod has 256 MiB more, for gVisor.",
		},
		{Name: "cpus", Type: sdk.TypeNumber, Default: 1, Min: sdk.Bound(0.1), Max: sdk.Bound(256), Label: "CPUs", Description: "CPU time of one sandbox; 0.5 is half a CPU."},
		{Name: "memory_request_mb", Type: sdk.TypeInteger, Default: 0, Min: sdk.Bound(0), Max: sdk.Bound(1 << 20), Label: "Memory request (MiB)", Description: "What a node must have free for a pod; 0 for all that it may use."},
		{Name: "cpu_request", Type: sdk.TypeNumber, Default: 0, Min: sdk.Bound(0), Max: sdk.Bound(256), Label: "CPU request", Description: "The CPU time that a node must have free for a pod; 0 for all that it may use."},
		{Name: "workspace_mb", Type: sdk.TypeInteger, Default: 256, Min: sdk.Bound(1), Max: sdk.Bound(1 << 20), Label: "Workspace (MiB)", Description: "Size of /workspace and of /tmp, which are in memory."},
		{Name: "processes", Type: sdk.TypeInteger, Default: 128, Min: sdk.Bound(8), Max: sdk.Bound(10000), Label: "Processes", Description: "Processes and threads that the programs in one sandbox may have."},
		{Name: "pool_size", Type: sdk.TypeInteger, Default: 2, Min: sdk.Bound(0), Max: sdk.Bound(1000), Label: "Pool size", Description: "Pods kept ready, split between the templates by recent demand."},
		{Name: "max_sandboxes", Type: sdk.TypeInteger, Default: 200, Min: sdk.Bound(1), Max: sdk.Bound(10000), Label: "Most sandboxes", Description: "Pods that this broker may have at once, ready ones and those in use."},
		{Name: "queue_timeout", Type: sdk.TypeDuration, Default: "1m", Min: sdk.Bound(0), Max: sdk.Bound(3600), Label: "Queue timeout", Description: "How long a request waits for a pod before it is refused with SB004."},
		{Name: "max_age", Type: sdk.TypeDuration, Default: "1h", Min: sdk.Bound(0), Max: sdk.Bound(30 * 24 * 3600), Label: "Age of ready pods", Description: "How long a pod may wait to be used before a new one takes its place; at least 1m, 0 for no end."},
		{
			Name: "abandoned_after", Type: sdk.TypeDuration, Default: "24h", Min: sdk.Bound(0), Max: sdk.Bound(365 * 24 * 3600), Label: "End of abandoned pods",
			Description: "How long no process of this broker may be connected to a pod before the pod ends by itself: the broker may be gone for ever. Instances last until their own end in any case. At least 2m, 0 for never.",
		},
		{Name: "create_timeout", Type: sdk.TypeDuration, Default: "2m", Min: sdk.Bound(5), Max: sdk.Bound(3600), Label: "Creation timeout", Description: "How long a pod may take until it runs, the pulling of its images included."},
	}, slices.Concat(networkFields(), guestpackages.Fields(), guestpolicy.Fields())...)
}

// leastSecret is how long a secret must be, in characters.
const leastSecret = 32

// leastMaxAge keeps a pool from being busy with nothing but replacing itself.
const leastMaxAge = time.Minute

// leastAbandoned is more than passes between two looks at a pod that waits in the pool.
const leastAbandoned = 2 * time.Minute

// Validate implements sdk.SettingsValidator.
func (p *Provider) Validate(_ context.Context, given sdk.Settings) []sdk.FieldError {
	var s settings
	if err := given.Decode(&s); err != nil {
		return []sdk.FieldError{{Message: err.Error()}}
	}
	var problems []sdk.FieldError
	add := func(field, format string, args ...any) {
		problems = append(problems, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if s.RuntimeClass == "" && s.Kernel != kernelShared {
		add("runtime_class", "must name a class that gives each pod a kernel of its own, unless kernel is %q", kernelShared)
	}
	if s.Kubeconfig == "" && s.Context != "" {
		add("context", "belongs to a kubeconfig")
	}
	if s.Secret != "" && len(s.Secret) < leastSecret {
		add("secret", "must have at least %d characters", leastSecret)
	}
	if s.PoolSize > s.MaxSandboxes {
		add("pool_size", "must not be above max_sandboxes (%d)", s.MaxSandboxes)
	}
	if s.MaxAge > 0 && s.MaxAge < leastMaxAge {
		add("max_age", "must be at least %s, or 0 for no end", leastMaxAge)
	}
	if s.AbandonedAfter > 0 && s.AbandonedAfter < leastAbandoned {
		add("abandoned_after", "must be at least %s, or 0 for never", leastAbandoned)
	}
	if s.CPURequest > s.CPUs {
		add("cpu_request", "must not be above cpus (%g)", s.CPUs)
	}
	if most := s.limits().HostMemory() >> 20; s.MemoryRequestMB > most {
		add("memory_request_mb", "must not be above what the pod may use (%d)", most)
	}
	for _, name := range s.PullSecrets {
		if !wholeName.MatchString(name) {
			add("image_pull_secrets", "has %.100q, which is no name of a secret", name)
		}
	}
	s.validateNetwork(add)
	problems = append(problems, s.Packages.Validate()...)
	if _, err := s.Policy.Encoded(); err != nil {
		field, message := "", err.Error()
		if e, ok := errors.AsType[*sdk.Error](err); ok {
			field, message = e.Field, e.Message
		}
		add(field, "%s", message)
	}
	return problems
}

var wholeName = regexp.MustCompile(`^` + nameForm + `$`)
