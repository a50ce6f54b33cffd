package docker

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Engine is what this package needs of the engine's client.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	ImageInspect(ctx context.Context, image string, options ...client.ImageInspectOption) (image.InspectResponse, error)
	ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, network *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerAttach(ctx context.Context, name string, options container.AttachOptions) (types.HijackedResponse, error)
	ContainerStart(ctx context.Context, name string, options container.StartOptions) error
	ContainerWait(ctx context.Context, name string, condition container.WaitCondition) (<-chan container.WaitResponse, <-chan error)
	ContainerPause(ctx context.Context, name string) error
	ContainerUnpause(ctx context.Context, name string) error
	ContainerRemove(ctx context.Context, name string, options container.RemoveOptions) error
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
	ContainerStatPath(ctx context.Context, name, path string) (container.PathStat, error)
	Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error)
	DaemonHost() string
	Close() error
}

var _ Engine = (*client.Client)(nil)

// defaultHost is where an engine listens unless told otherwise.
const defaultHost = "unix:///var/run/docker.sock"

// Connect makes a client of the engine at host; "" stands for what $DOCKER_HOST
// names, else for the usual socket. Nothing is sent yet. Only Unix sockets are
// taken: the guest is mounted from this machine, and whoever reaches an engine
// over TCP is root on its machine.
func Connect(host string) (*client.Client, error) {
	from := "docker_host"
	if host == "" {
		host, from = os.Getenv(client.EnvOverrideHost), "$DOCKER_HOST"
	}
	if host == "" {
		host = defaultHost
	}
	if path, ok := strings.CutPrefix(host, "unix://"); !ok || !strings.HasPrefix(path, "/") {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "docker_host", "%s is %q, but must be a Unix socket on this machine, such as %s", from, host, defaultHost)
	}
	c, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "docker_host", "%w", err)
	}
	return c, nil
}

// unreachable says that the engine does not answer, and what is usually the
// reason.
func unreachable(e Engine, err error) error {
	remedy := "start it, or name its socket with the setting docker_host"
	if path := strings.TrimPrefix(e.DaemonHost(), "unix://"); path != e.DaemonHost() {
		if _, statErr := os.Stat(path); statErr == nil && strings.Contains(err.Error(), "permission denied") {
			remedy = "add the broker's user to the group that owns the socket"
		}
	}
	return sdk.Errorf(sdk.CodeConnectionFailed, "the Docker Engine at %s does not answer (%w): %s", e.DaemonHost(), shortened{err}, remedy)
}

// shortened keeps the cause and drops the advice that the client appends to it.
type shortened struct{ error }

func (s shortened) Error() string {
	text, _, _ := strings.Cut(s.error.Error(), ". Is the docker daemon running?")
	return strings.TrimSpace(text)
}

func (s shortened) Unwrap() error { return s.error }

// facts are what the engine says of itself, as far as it matters here.
type facts struct {
	version    string
	runtime    system.RuntimeWithStatus
	lacks      []string // limits that it cannot enforce
	imageGuest string   // path of the guest in the image; "" if it has none
}

// inspect asks the engine what sandboxes need, and says in one sentence what is
// missing.
func inspect(ctx context.Context, e Engine, runtime, imageName string) (facts, error) {
	info, err := e.Info(ctx)
	if err != nil {
		return facts{}, unreachable(e, err)
	}
	registered, ok := info.Runtimes[runtime]
	if !ok {
		remedy := fmt.Sprintf("register it in the engine's daemon.json and restart the engine, or name another with the setting docker_runtime (there are %s)", names(info.Runtimes))
		if runtime == DefaultRuntime {
			remedy = `run "runsc install" as root, or put {"runtimes": {"runsc": {"path": "/usr/local/bin/runsc"}}} into the engine's daemon.json; then restart the engine`
		}
		return facts{}, sdk.FieldErrorf(sdk.CodeInvalidConfig, "docker_runtime", "the Docker Engine has no runtime %q: %s", runtime, remedy)
	}
	img, err := e.ImageInspect(ctx, imageName)
	switch {
	case isNotFound(err):
		return facts{}, sdk.FieldErrorf(sdk.CodeInvalidConfig, "image", "the Docker Engine has no image %q: make the default one with `make rootfs`, or name another with the setting image", imageName)
	case err != nil:
		return facts{}, unreachable(e, err)
	}
	f := facts{version: info.ServerVersion, runtime: registered}
	if img.Config != nil {
		f.imageGuest = img.Config.Labels[labelGuest]
	}
	for _, limit := range []struct {
		what string
		ok   bool
	}{
		{"memory", info.MemoryLimit},
		{"CPU", info.CPUCfsQuota},
		{"processes", info.PidsLimit},
	} {
		if !limit.ok {
			f.lacks = append(f.lacks, limit.what)
		}
	}
	return f, nil
}
