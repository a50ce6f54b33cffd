package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/system"
	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestfile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Defaults of the settings.
const (
	DefaultRuntime = "runsc"
	DefaultImage   = "sandbox-broker/rootfs:latest"
)

// Options of a Runtime.
type Options struct {
	// StateDir belongs to the runtime alone. The guest is copied there, so that
	// a new build does not change what running plugins start.
	StateDir string
	// BrokerID and Label are put on every container; those of an earlier
	// process with the same are removed.
	BrokerID, Label string
	// Runtime is the name under which the engine knows the OCI runtime.
	Runtime string
	// Image holds the interpreters.
	Image string
	// Guest is the guest binary on the host.
	Guest string
	// LimitsRequired refuses an engine that cannot enforce them all.
	LimitsRequired bool
	Limits         confine.Limits
	Logger         hclog.Logger
}

// Runtime starts sandboxes.
type Runtime struct {
	engine Engine
	o      Options
	facts  facts
	guest  string // the copy of the guest, on the host
	owner  string

	program    *guestfile.File
	installing sync.Mutex

	life       context.Context // of what runs beside the calls; ends with Close
	end        context.CancelFunc
	background sync.WaitGroup

	mu        sync.Mutex
	sandboxes map[string]*Sandbox // by the name of the container
}

// New checks that sandboxes can be made with the engine and removes the
// containers that an earlier process left. It takes the engine over. Its errors
// are *sdk.Error and say in one sentence what is missing and what to do.
func New(ctx context.Context, engine Engine, o Options) (_ *Runtime, err error) {
	r := &Runtime{engine: engine, o: o, guest: filepath.Join(o.StateDir, "guest"), sandboxes: map[string]*Sandbox{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, engine.Close())
		}
	}()
	if r.facts, err = inspect(ctx, engine, o.Runtime, o.Image); err != nil {
		return nil, err
	}
	if o.LimitsRequired && len(r.facts.lacks) > 0 {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "cgroups", "cgroups are required but cannot be used: %s", r.lacking())
	}
	if r.owner, err = self(); err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "%w", err)
	}
	if err := r.sweep(ctx); err != nil {
		return nil, err
	}
	// One of an earlier build is not this one's.
	if err := os.Remove(r.guest); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, sdk.Errorf(sdk.CodeInternal, "remove an earlier guest: %w", err)
	}
	if r.program, err = guestfile.Open(o.Guest); err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "guest", "%w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.program.Close())
		}
	}()
	if err := r.installGuest(); err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "copy the guest: %w", err)
	}
	r.life, r.end = context.WithCancel(context.WithoutCancel(ctx))
	r.background.Go(r.watchMemory)
	return r, nil
}

// installGuest makes the copy of the guest that containers are shown, unless it is
// there. The state directory may have been removed meanwhile.
func (r *Runtime) installGuest() error {
	r.installing.Lock()
	defer r.installing.Unlock()
	if err := os.MkdirAll(r.o.StateDir, 0o700); err != nil {
		return err
	}
	return r.program.Install(r.guest)
}

// sweep removes the containers of processes that are gone. Those of a living one
// are left alone: while settings are reloaded, two serve side by side.
func (r *Runtime) sweep(ctx context.Context) error {
	list, err := r.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: r.mine()})
	if err != nil {
		return unreachable(r.engine, err)
	}
	for _, c := range list {
		if alive(c.Labels[labelOwner]) {
			continue
		}
		if c.State == container.StatePaused {
			_ = r.engine.ContainerUnpause(ctx, c.ID) // what is frozen does not die
		}
		if err := r.remove(ctx, c.ID); err != nil {
			return sdk.Errorf(sdk.CodeConnectionFailed, "remove the container %s of an earlier process: %w", c.ID, err)
		}
	}
	return nil
}

// mine selects the containers of this broker and provider.
func (r *Runtime) mine() filters.Args {
	return filters.NewArgs(filters.Arg("label", labelBroker+"="+r.o.BrokerID), filters.Arg("label", labelProvider+"="+r.o.Label))
}

// remove removes a container in any state. It is no error if there is none.
func (r *Runtime) remove(ctx context.Context, name string) error {
	err := r.engine.ContainerRemove(ctx, name, container.RemoveOptions{Force: true, RemoveVolumes: true})
	if isNotFound(err) || errdefs.IsConflict(err) { // the latter: a removal is in progress
		return nil
	}
	return err
}

func isNotFound(err error) bool { return errdefs.IsNotFound(err) }

// Version of the engine and its runtime.
func (r *Runtime) Version() string {
	how := r.facts.runtime.Path
	if how == "" {
		how = r.facts.runtime.Type
	}
	return fmt.Sprintf("Docker Engine %s, runtime %s (%s)", r.facts.version, r.o.Runtime, how)
}

// Weakness says in one sentence what is not enforced here; "" if all is.
func (r *Runtime) Weakness() string {
	var weak []string
	if !r.GVisor() {
		weak = append(weak, fmt.Sprintf("the runtime %q is not gVisor: programs in a sandbox speak to this machine's kernel itself, a hole in which is a hole in the sandbox; "+
			"the guest has CAP_SYS_ADMIN there; and code that runs out of memory is reported as killed", r.o.Runtime))
	}
	if len(r.facts.lacks) > 0 {
		weak = append(weak, r.lacking())
	}
	return strings.Join(weak, "; ")
}

func (r *Runtime) lacking() string {
	return "the Docker Engine cannot limit " + strings.Join(r.facts.lacks, ", ") + " of a sandbox on this machine"
}

// GVisor reports whether the engine's runtime is gVisor, under whatever name.
func (r *Runtime) GVisor() bool {
	return r.o.Runtime == DefaultRuntime || filepath.Base(r.facts.runtime.Path) == "runsc" || strings.HasPrefix(r.facts.runtime.Type, "io.containerd.runsc")
}

// checkTimeout bounds a Check: an engine that hangs is as good as none.
const checkTimeout = 5 * time.Second

// Check says in one sentence what is missing for new sandboxes, nil if nothing.
func (r *Runtime) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := inspect(ctx, r.engine, r.o.Runtime, r.o.Image)
	return err
}

// Interpreter finds a program in the image.
func (r *Runtime) Interpreter(ctx context.Context, names ...string) (string, bool, error) {
	// A container that is never started shows the files.
	probe := r.containerName(strings.Join(append([]string{"probe", r.owner}, names...), "-"))
	config, host := r.config("")
	if _, err := r.engine.ContainerCreate(ctx, config, host, nil, nil, probe); err != nil {
		return "", false, sdk.Errorf(sdk.CodeInvalidConfig, "make a container of the image %s: %w", r.o.Image, err)
	}
	path, found, err := r.find(ctx, probe, names)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return path, found, errors.Join(err, r.remove(ctx, probe))
}

func (r *Runtime) find(ctx context.Context, probe string, names []string) (string, bool, error) {
	for _, name := range names {
		for _, dir := range []string{"/usr/local/bin/", "/usr/bin/", "/bin/"} {
			stat, err := r.engine.ContainerStatPath(ctx, probe, dir+name)
			if err == nil && stat.LinkTarget != "" { // resolved by the engine, inside the image
				stat, err = r.engine.ContainerStatPath(ctx, probe, stat.LinkTarget)
			}
			switch {
			case isNotFound(err):
			case err != nil:
				return "", false, sdk.Errorf(sdk.CodeConnectionFailed, "look for %s in the image %s: %w", name, r.o.Image, err)
			case stat.Mode.IsRegular() && stat.Mode&0o111 != 0:
				return dir + name, true, nil
			}
		}
	}
	return "", false, nil
}

// Close frees what the runtime holds. All sandboxes must have ended.
func (r *Runtime) Close() error {
	r.end()
	err := errors.Join(r.program.Close(), r.engine.Close())
	if gone := os.Remove(r.guest); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	r.background.Wait()
	return err
}

func names(runtimes map[string]system.RuntimeWithStatus) string {
	return strings.Join(slices.Sorted(maps.Keys(runtimes)), ", ")
}
