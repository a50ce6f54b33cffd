package docker

import (
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/strslice"
	"github.com/docker/go-units"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
)

// Labels of containers, and of images.
const (
	labelBroker   = "io.sandbox-broker.broker"
	labelProvider = "io.sandbox-broker.provider"
	labelInstance = "io.sandbox-broker.instance"
	labelCreated  = "io.sandbox-broker.created"
	labelOwner    = "io.sandbox-broker.process"
	// labelGuest on an image is the path of the guest in it. It is for brokers
	// that run in a container themselves, whose files the engine does not see.
	labelGuest = "io.sandbox-broker.guest"
)

// containerName names the container of an instance. The engine takes a prefix of
// an ID for the ID, but not of a name, and an ID is hexadecimal, so nothing else
// is ever meant.
func (r *Runtime) containerName(id string) string {
	return strings.Join([]string{"sandbox-broker", r.o.BrokerID, r.o.Label, id}, "-")
}

// config is the container of one sandbox.
func (r *Runtime) config(id string) (*container.Config, *container.HostConfig) {
	l := r.o.Limits
	guest := r.facts.imageGuest
	var mounts []mount.Mount
	if guest == "" {
		guest = confine.GuestPath
		mounts = []mount.Mount{{Type: mount.TypeBind, Source: r.guest, Target: guest, ReadOnly: true}}
	}
	tmpfs := map[string]string{}
	for _, t := range l.Tmpfs() {
		tmpfs[t.Path] = strings.Join(t.Options, ",")
		if !strings.Contains(tmpfs[t.Path], "noexec") {
			tmpfs[t.Path] += ",exec" // the engine's own default is not to
		}
	}
	config := &container.Config{
		Image:      r.o.Image,
		Hostname:   confine.Hostname,
		User:       "0:0",
		WorkingDir: "/",
		Entrypoint: strslice.StrSlice{guest},
		Env:        confine.GuestEnv(),
		OpenStdin:  true, StdinOnce: true,
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Labels: map[string]string{
			labelBroker: r.o.BrokerID, labelProvider: r.o.Label, labelInstance: id,
			labelCreated: time.Now().UTC().Format(time.RFC3339), labelOwner: r.owner,
		},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // whatever the image says
	}
	memory, processes := l.HostMemory(), l.HostProcesses()
	init := false // the guest is process 1
	capabilities := confine.GuestCapabilities()
	if !r.GVisor() {
		// It would let the guest pass the host's own limits, and is only needed
		// where the kernel is the sandbox's own.
		capabilities = slices.DeleteFunc(capabilities, func(c string) bool { return c == "CAP_SYS_RESOURCE" })
	}
	host := &container.HostConfig{
		Runtime:        r.o.Runtime,
		AutoRemove:     true,
		LogConfig:      container.LogConfig{Type: "none"},
		NetworkMode:    "none",
		IpcMode:        container.IPCModePrivate,
		ReadonlyRootfs: true,
		Tmpfs:          tmpfs,
		Mounts:         mounts,
		Init:           &init,
		CapDrop:        strslice.StrSlice{"ALL"},
		CapAdd:         capabilities,
		SecurityOpt:    []string{"no-new-privileges:true"},
		// Without a network there is nobody to ask, and whom the host asks is
		// not for the sandbox to know.
		DNS:       []string{"127.0.0.1"},
		DNSSearch: []string{"."},
		Resources: container.Resources{
			Memory:     memory,
			MemorySwap: memory, // in all: no swap beside the memory
			NanoCPUs:   int64(l.CPUs * 1e9),
			PidsLimit:  &processes,
			Ulimits: []*units.Ulimit{
				{Name: "core", Soft: 0, Hard: 0},
				{Name: "nofile", Soft: 4096, Hard: 4096},
				{Name: "fsize", Soft: l.WorkspaceMB << 20, Hard: l.WorkspaceMB << 20},
			},
		},
	}
	return config, host
}
