package runsc

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
)

// spec is the OCI configuration of one sandbox, whose guest gets these variables
// beside the usual ones.
func (r *Runtime) spec(root current, cgroupsPath string, env []string, limits confine.Limits) *specs.Spec {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
	}
	for _, t := range limits.Tmpfs() {
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
				Memory: &specs.LinuxMemory{Limit: new(limits.HostMemory())},
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

// share adds directories that others write to at the same time: gVisor asks the machine
// about each file there, instead of remembering what it has seen.
func share(spec *specs.Spec, mounts []Mount) {
	for i, m := range mounts {
		options := []string{"bind", "nosuid", "nodev"}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Destination, Type: "bind", Source: m.Source, Options: options})
		if spec.Annotations == nil {
			spec.Annotations = map[string]string{}
		}
		hint := fmt.Sprintf("dev.gvisor.spec.mount.shared%d.", i)
		spec.Annotations[hint+"source"], spec.Annotations[hint+"type"], spec.Annotations[hint+"share"] = m.Source, "bind", "shared"
	}
}
