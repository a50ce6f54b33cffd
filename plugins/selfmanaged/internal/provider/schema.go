package provider

import (
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/docker"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// settings of the provider block.
type settings struct {
	PoolSize     int64           `config:"pool_size"`
	MaxSandboxes int64           `config:"max_sandboxes"`
	QueueTimeout time.Duration   `config:"queue_timeout"`
	MaxAge       time.Duration   `config:"max_age"`
	OneShot      string          `config:"one_shot"`
	OneShotUses  int64           `config:"one_shot_uses"`
	OneShotAge   time.Duration   `config:"one_shot_age"`
	MemoryMB     int64           `config:"memory_mb"`
	CPUs         float64         `config:"cpus"`
	WorkspaceMB  int64           `config:"workspace_mb"`
	Processes    int64           `config:"processes"`
	Cgroups      string          `config:"cgroups"`
	Runtime      string          `config:"runtime"`
	Rootfs       string          `config:"rootfs"`
	Runsc        string          `config:"runsc"`
	Guest        string          `config:"guest"`
	Platform     string          `config:"platform"`
	Images       string          `config:"images"`
	TemplateDir  string          `config:"template_dir"`
	Registries   []registryLogin `config:"registry"`

	PausedMB int64 `config:"paused_mb"`

	VolumesMB int64  `config:"volumes_mb"`
	VolumeDir string `config:"volume_dir"`

	DockerHost    string `config:"docker_host"`
	DockerRuntime string `config:"docker_runtime"`
	Image         string `config:"image"`

	Packages         guestpackages.Settings `config:",squash"`
	PackageLayersMB  int64                  `config:"package_layers_mb"`
	PackageLayersAge time.Duration          `config:"package_layers_age"`

	Policy guestpolicy.Settings `config:",squash"`
}

func schema() sdk.Schema {
	return append(sdk.Schema{
		{
			Name: "pool_size", Type: sdk.TypeInteger, Default: 10, Min: sdk.Bound(0), Max: sdk.Bound(1000),
			Label: "Pool size", Description: "Sandboxes kept ready, split between the templates by recent demand.",
		},
		{
			Name: "max_sandboxes", Type: sdk.TypeInteger, Default: 200, Min: sdk.Bound(1), Max: sdk.Bound(10000),
			Label: "Most sandboxes", Description: "Sandboxes that may exist at once, ready ones and those in use.",
		},
		{
			Name: "queue_timeout", Type: sdk.TypeDuration, Default: "30s", Min: sdk.Bound(0), Max: sdk.Bound(3600),
			Label: "Queue timeout", Description: "How long a request waits for a sandbox before it is refused with SB004.",
		},
		{
			Name: "max_age", Type: sdk.TypeDuration, Default: "1h", Min: sdk.Bound(0), Max: sdk.Bound(30 * 24 * 3600),
			Label: "Age of ready sandboxes", Description: "How long a sandbox may wait to be used before a new one takes its place; at least 1m, 0 for no end.",
		},
		{
			Name: "one_shot", Type: sdk.TypeString, Default: oneShotFresh, Options: []string{oneShotFresh, oneShotTenant},
			Label: "Executions without an instance", Description: "What an execution in no instance of its own gets: fresh, a sandbox that nobody had before; tenant, one after the other a sandbox that earlier ones of the same tenant have left, emptied, with nothing running. Many times as many of them are done in a second; what is given up is in the security model.",
		},
		{
			Name: "one_shot_uses", Type: sdk.TypeInteger, Default: 1000, Min: sdk.Bound(1), Max: sdk.Bound(1 << 20),
			Label: "Executions in one sandbox", Description: "After how many executions a sandbox of one_shot = tenant is destroyed.",
		},
		{
			Name: "one_shot_age", Type: sdk.TypeDuration, Default: "10m", Min: sdk.Bound(1), Max: sdk.Bound(24 * 3600),
			Label: "Age of a sandbox in use", Description: "How long after its first execution a sandbox of one_shot = tenant is destroyed.",
		},
		{
			Name: "memory_mb", Type: sdk.TypeInteger, Default: 512, Min: sdk.Bound(64), Max: sdk.Bound(1 << 20),
			Label: "Memory (MiB)", Description: "What the programs in one sandbox may use together, files in /workspace and /tmp included.",
		},
		{
			Name: "cpus", Type: sdk.TypeNumber, Default: 1, Min: sdk.Bound(0.1), Max: sdk.Bound(256),
			Label: "CPUs", Description: "CPU time of one sandbox; 0.5 is half a CPU.",
		},
		{
			Name: "workspace_mb", Type: sdk.TypeInteger, Default: 256, Min: sdk.Bound(1), Max: sdk.Bound(1 << 20),
			Label: "Workspace (MiB)", Description: "Size of /workspace and of /tmp.",
		},
		{
			Name: "processes", Type: sdk.TypeInteger, Default: 128, Min: sdk.Bound(8), Max: sdk.Bound(10000),
			Label: "Processes", Description: "Processes and threads that the programs in one sandbox may have.",
		},
		{
			Name: "paused_mb", Type: sdk.TypeInteger, Default: 10240, Min: sdk.Bound(0), Max: sdk.Bound(1 << 30),
			Label: "Paused instances (MiB)", Description: "Room on the disk for paused instances: they are written there, encrypted, and give back their memory and their place among max_sandboxes. Without room a pause is refused. 0 freezes them instead, as is done with an instance with volumes, without root and with the runtime docker: a frozen one keeps both.",
		},
		{
			Name: "volumes_mb", Type: sdk.TypeInteger, Default: 0, Min: sdk.Bound(0), Max: sdk.Bound(1 << 30),
			Label: "Volumes (MiB)", Description: "Room on the disk for the volumes of all tenants together; 0 for no volumes. A volume takes its size when it is made. For root and the runtime runsc only, on a machine with loop devices, e2fsprogs and overlayfs.",
		},
		{
			Name: "volume_dir", Type: sdk.TypeString, FileOnly: true, Pattern: `/.*`,
			Label: "Directory of volumes", Description: "Where volumes are kept. Without it, in the state directory of the broker. What is there is the data of tenants: it is never removed by itself.", Placeholder: "/var/lib/sandbox-broker/volumes",
		},
		{
			Name: "cgroups", Type: sdk.TypeString, Default: string(runsc.CgroupAuto),
			Options: []string{string(runsc.CgroupAuto), string(runsc.CgroupRequired)},
			Label:   "Host limits", Description: "auto sets cgroup limits where this machine allows it and says so where not; required refuses to start without them.",
		},
		{
			Name: "runtime", Type: sdk.TypeString, Default: runtimeRunsc, Options: []string{runtimeRunsc, runtimeDocker},
			Label: "Runtime", Description: "What starts the sandboxes: runsc itself, which needs no daemon, or a Docker Engine on this machine.",
		},
		{
			Name: "rootfs", Type: sdk.TypeString, FileOnly: true, Default: runsc.HostRootfs, Min: sdk.Bound(1),
			Label: "Root file system", Description: "What sandboxes of the runtime runsc see, read-only: host for this machine's own /usr, or the absolute path of a directory that `make rootfs` made.",
			Placeholder: "/var/lib/sandbox-broker/rootfs",
		},
		{
			Name: "docker_host", Type: sdk.TypeString, FileOnly: true, Pattern: `unix:///.+`,
			Label: "Docker Engine", Description: "Socket of the engine, for the runtime docker. Without it, $DOCKER_HOST, else the usual socket.", Placeholder: "unix:///var/run/docker.sock",
		},
		{
			Name: "docker_runtime", Type: sdk.TypeString, FileOnly: true, Default: docker.DefaultRuntime, Min: sdk.Bound(1),
			Label: "Docker runtime", Description: "Name under which the engine knows gVisor. Any other runtime gives up the kernel between the code and this machine, and a warning says so.",
		},
		{
			Name: "image", Type: sdk.TypeString, FileOnly: true, Default: docker.DefaultImage, Min: sdk.Bound(1),
			Label: "Image", Description: "Image with the interpreters, for the runtime docker; `make rootfs` makes the default. It is never pulled.",
		},
		{
			Name: "runsc", Type: sdk.TypeString, FileOnly: true,
			Label: "runsc", Description: "Path of the gVisor binary. Without it, the PATH is searched, then the directory of the guest.", Placeholder: "/usr/local/bin/runsc",
		},
		{
			Name: "guest", Type: sdk.TypeString, FileOnly: true,
			Label: "Guest", Description: "Path of sandbox-guest. Without it, it is looked for beside the plugin and in the directory above.",
		},
		{
			Name: "platform", Type: sdk.TypeString, Default: "systrap", Options: []string{"systrap", "kvm"},
			Label: "gVisor platform", Description: "systrap works everywhere; kvm is faster on bare metal and needs /dev/kvm.",
		},
		{
			Name: "images", Type: sdk.TypeString, Default: imagesNever, Options: []string{imagesNever, imagesOnDemand, imagesAlways},
			Label: "Copies", Description: "Whether Python sandboxes of the runtime runsc are copies of one that was prepared before: never; demand, while many are made; or always. About half as many again can be made in a second; the copies of ten minutes, whoever has them, have the same addresses and hash seed. For root only; others prepare each.",
		},
		{
			Name: "template_dir", Type: sdk.TypeString, FileOnly: true, Pattern: `/.*`,
			Label: "Templates", Description: "Where the root file systems of templates are kept that were built, for the runtime runsc. Several providers and brokers of this machine may share it. Without it, below the state directory of the broker.", Placeholder: "/var/lib/sandbox-broker/templates",
		},
		registryField(),
	}, slices.Concat(guestpackages.Fields(), layerFields(), guestpolicy.Fields())...)
}

// layerFields are the settings of layers of packages.
func layerFields() sdk.Schema {
	return sdk.Schema{
		{
			Name: "package_layers_mb", Type: sdk.TypeInteger, Default: 2048, Min: sdk.Bound(0), Max: sdk.Bound(1 << 30),
			Label: "Package layers (MiB)", Description: "Room on the disk for what was installed for sets of packages, so that it is installed once and every later instance has it at once; 0 installs them in each instance. The longest unused goes first. For the runtime runsc only.",
		},
		{
			Name: "package_layers_age", Type: sdk.TypeDuration, Default: "24h", Min: sdk.Bound(60), Max: sdk.Bound(365 * 24 * 3600),
			Label: "Age of package layers", Description: "How long what was installed for a set of packages is used, before it is installed anew: until then a requirement without a version stays at what was newest.",
		},
	}
}
