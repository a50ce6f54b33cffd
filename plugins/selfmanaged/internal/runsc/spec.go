package runsc

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// guestCapabilities are what the guest needs to put user code into a namespace
// of its own as another user. They are capabilities of gVisor's kernel, not of
// the host's, and user code gets none of them.
var guestCapabilities = []string{"CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_SYS_RESOURCE", "CAP_DAC_OVERRIDE"}

// spec is the OCI configuration of one sandbox.
func (r *Runtime) spec(cgroupsPath string) *specs.Spec {
	tmpfs := func(path, mode string, mb int64, flags ...string) specs.Mount {
		options := append([]string{"mode=" + mode, fmt.Sprintf("size=%dm", mb), "nosuid", "nodev"}, flags...)
		return specs.Mount{Destination: path, Type: "tmpfs", Source: "tmpfs", Options: options}
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		tmpfs("/dev/shm", "1777", r.limits.WorkspaceMB, "noexec"),
		tmpfs("/tmp", "1777", r.limits.WorkspaceMB),
		tmpfs("/workspace", "1777", r.limits.WorkspaceMB),
		tmpfs("/run", "0755", 1, "noexec"),
	}
	capabilities := guestCapabilities
	return &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			User: specs.User{UID: 0, GID: 0},
			Args: []string{guestPath},
			// Few threads keep the guest small.
			Env: []string{"GOMAXPROCS=2", "GOTRACEBACK=single"},
			Cwd: "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			NoNewPrivileges: true,
		},
		Root:     &specs.Root{Path: r.rootfs, Readonly: true},
		Hostname: "sandbox",
		Mounts:   append(mounts, r.systemMounts...),
		Linux: &specs.Linux{
			CgroupsPath: cgroupsPath,
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: new(r.limits.hostMemory())},
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
