package provider

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/docker"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// settings of the provider block.
type settings struct {
	PoolSize     int64         `config:"pool_size"`
	MaxSandboxes int64         `config:"max_sandboxes"`
	QueueTimeout time.Duration `config:"queue_timeout"`
	MaxAge       time.Duration `config:"max_age"`
	OneShot      string        `config:"one_shot"`
	OneShotUses  int64         `config:"one_shot_uses"`
	OneShotAge   time.Duration `config:"one_shot_age"`
	MemoryMB     int64         `config:"memory_mb"`
	CPUs         float64       `config:"cpus"`
	WorkspaceMB  int64         `config:"workspace_mb"`
	Processes    int64         `config:"processes"`
	Cgroups      string        `config:"cgroups"`
	Runtime      string        `config:"runtime"`
	Rootfs       string        `config:"rootfs"`
	Runsc        string        `config:"runsc"`
	Guest        string        `config:"guest"`
	Platform     string        `config:"platform"`
	Images       string        `config:"images"`

	DockerHost    string `config:"docker_host"`
	DockerRuntime string `config:"docker_runtime"`
	Image         string `config:"image"`

	Packages     string   `config:"packages"`
	PackageIndex string   `config:"package_index"`
	PackageHosts []string `config:"package_hosts"`
	PackageMB    int64    `config:"package_mb"`
	WheelDir     string   `config:"wheel_dir"`
	NPMRegistry  string   `config:"npm_registry"`

	Policy               string   `config:"policy"`
	PolicyBlockedImports []string `config:"policy_blocked_imports"`
	PolicyBlockedCalls   []string `config:"policy_blocked_calls"`
	PolicyAllowedRules   []string `config:"policy_allowed_rules"`
}

// codePolicy returns the code policy as the guest reads it.
func (s settings) codePolicy() ([]byte, error) {
	policy, err := codepolicy.Settings{
		Mode:           codepolicy.Mode(s.Policy),
		BlockedImports: s.PolicyBlockedImports,
		BlockedCalls:   s.PolicyBlockedCalls,
		AllowedRules:   s.PolicyAllowedRules,
	}.Policy()
	if wrong, ok := errors.AsType[*codepolicy.SettingError](err); ok {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, wrong.Setting, "%s", wrong.Reason)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(policy)
}

func schema() sdk.Schema {
	return sdk.Schema{
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
			Name: settingPackages, Type: sdk.TypeString, Default: packagesOff, Options: []string{packagesOff, packagesOn},
			Label: "Packages", Description: "Whether agents may install packages into their instances, from the places below. The sandboxes have no network; an installation reaches these hosts through the plugin, and only while it runs.",
		},
		{
			Name: settingPackageIndex, Type: sdk.TypeString, FileOnly: true, Pattern: `https?://.+`,
			Label: "Python index", Description: "A simple index of Python packages, which may be on a private network. It cannot be one that asks for a password.", Placeholder: "https://packages.example.com/simple/",
		},
		{
			Name: settingPackageHosts, Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(100),
			Label: "Package hosts", Description: "Further hosts that an installation may reach, at ports 80 and 443 and on the open Internet: where the files are that an index points at. `*.` before a name stands for all below it.",
		},
		{
			Name: settingPackageMB, Type: sdk.TypeInteger, Default: 1024, Min: sdk.Bound(1), Max: sdk.Bound(1 << 20),
			Label: "Download (MiB)", Description: "What one installation may receive.",
		},
		{
			Name: settingWheelDir, Type: sdk.TypeString, FileOnly: true, Pattern: `/.*`,
			Label: "Wheels", Description: "A directory on this machine with wheels to install, beside the index or instead of it.", Placeholder: "/var/lib/sandbox-broker/wheels",
		},
		{
			Name: settingNPMRegistry, Type: sdk.TypeString, FileOnly: true, Pattern: `https?://.+`,
			Label: "npm registry", Description: "A registry of JavaScript packages, which may be on a private network. Sandboxes need npm for it.", Placeholder: "https://npm.example.com/",
		},
		{
			Name: codepolicy.SettingMode, Type: sdk.TypeString, Default: string(codepolicy.Audit),
			Options: []string{string(codepolicy.Off), string(codepolicy.Audit), string(codepolicy.Enforce)},
			Label:   "Code policy", Description: "What to do about code that names what it should not: audit reports findings with the result, enforce refuses the code with SB007, off does not look. The sandbox protects in any case.",
		},
		{
			Name: codepolicy.SettingBlockedImports, Type: sdk.TypeList, Default: codepolicy.DefaultBlockedImports(), Max: sdk.Bound(1000),
			Label: "Blocked imports", Description: "Modules that the code policy objects to, each behind its language: python:os, javascript:child_process. Given, the list replaces the default.",
		},
		{
			Name: codepolicy.SettingBlockedCalls, Type: sdk.TypeList, Default: codepolicy.DefaultBlockedCalls(), Max: sdk.Bound(1000),
			Label: "Blocked calls", Description: "Functions that the code policy objects to: builtins and globals by their name, others with their module; in Python a * at the end stands for any rest. Given, the list replaces the default.",
		},
		{
			Name: codepolicy.SettingAllowedRules, Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(1000),
			Label: "Allowed rules", Description: "Exceptions from the code policy: names of rules as findings tell them, such as python.import.os or, for a part of it, python.import.os.path.",
		},
	}
}
