package runsc

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
)

// spec is the OCI configuration of one sandbox, whose guest gets these variables
// beside the usual ones.
func (r *Runtime) spec(root current, cgroupsPath string, env []string) *specs.Spec {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
	}
	for _, t := range r.limits.Tmpfs() {
		mounts = append(mounts, specs.Mount{Destination: t.Path, Type: "tmpfs", Source: "tmpfs", Options: t.Options})
	}
	capabilities := confine.GuestCapabilities()
	return &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			User: specs.User{UID: 0, GID: 0},
			Args: []string{confine.GuestPath},
			Env:  append(confine.GuestEnv(), env...),
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			NoNewPrivileges: true,
		},
		Root:     &specs.Root{Path: root.dir, Readonly: true},
		Hostname: confine.Hostname,
		Mounts:   append(mounts, root.mounts...),
		Linux: &specs.Linux{
			CgroupsPath: cgroupsPath,
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: new(r.limits.HostMemory())},
			},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
			},
		},
	}
}
