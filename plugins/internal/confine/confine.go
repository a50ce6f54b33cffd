// Package confine says what confines every sandbox, whatever runtime starts it:
// limits, file systems in memory, and what the guest, its process 1, may do.
// How a runtime is told so is the runtime's own matter.
package confine

import "fmt"

// GuestPath is where the guest lies inside a sandbox.
const GuestPath = "/opt/sandbox/guest"

// Hostname of every sandbox: that of the host is nobody's business.
const Hostname = "sandbox"

// Limits of one sandbox.
type Limits struct {
	// MemoryMB that the programs in it may use together.
	MemoryMB int64
	// CPUs of time; 0.5 is half of one.
	CPUs float64
	// WorkspaceMB is the size of /workspace, /tmp and /dev/shm, each. Files
	// there count as memory.
	WorkspaceMB int64
	// Processes that programs in it may have.
	Processes int64
}

// kernelMemory is what gVisor itself takes beside the programs, generously.
const kernelMemory = 256 << 20

// HostMemory is the limit, in bytes, on all that the sandbox takes of the host.
func (l Limits) HostMemory() int64 { return l.MemoryMB<<20 + kernelMemory }

// HostProcesses is the limit on threads on the host; it leaves room for those of
// gVisor itself.
func (l Limits) HostProcesses() int64 { return 4*l.Processes + 512 }

// Tmpfs is a file system in memory.
type Tmpfs struct {
	Path string
	// MB is its size in MiB.
	MB int64
	// Options of the mount, as mount(8) takes them.
	Options []string
}

// Tmpfs lists the only places in a sandbox where anything can be written.
func (l Limits) Tmpfs() []Tmpfs {
	tmpfs := func(path, mode string, mb int64, flags ...string) Tmpfs {
		return Tmpfs{path, mb, append([]string{"mode=" + mode, fmt.Sprintf("size=%dm", mb), "nosuid", "nodev"}, flags...)}
	}
	return []Tmpfs{
		tmpfs("/dev/shm", "1777", l.WorkspaceMB, "noexec"),
		tmpfs("/tmp", "1777", l.WorkspaceMB),
		tmpfs("/workspace", "1777", l.WorkspaceMB),
		tmpfs("/run", "0755", 1, "noexec"),
	}
}

// GuestCapabilities are what the guest needs to put user code into a namespace
// of its own as another user. Under gVisor they are capabilities of its kernel,
// not of the host's, and user code gets none of them.
func GuestCapabilities() []string {
	return []string{"CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_SYS_RESOURCE", "CAP_DAC_OVERRIDE"}
}

// GuestEnv is the guest's own environment. Few threads keep it small.
func GuestEnv() []string { return []string{"GOMAXPROCS=2", "GOTRACEBACK=single"} }
