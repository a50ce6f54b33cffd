package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/docker"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Names of the runtimes, as the setting `runtime` has them.
const (
	runtimeRunsc  = "runsc"
	runtimeDocker = "docker"
)

// sandboxRuntime starts sandboxes.
type sandboxRuntime interface {
	// Start returns when the sandbox is on its way; who speaks to its guest
	// finds out when it is ready. The ID is new.
	Start(ctx context.Context, id string) (running, error)
	// Interpreter finds the first of some programs that sandboxes have, by the
	// path that it has there.
	Interpreter(ctx context.Context, names ...string) (path string, found bool, err error)
	// Version of what makes the sandboxes.
	Version() string
	// Weakness says in one sentence what is not enforced here; "" if all is.
	Weakness() string
	// GVisor reports whether a kernel of their own runs the sandboxes.
	GVisor() bool
	// Check says in one sentence what is missing to make sandboxes; nil if
	// nothing is.
	Check(ctx context.Context) error
	// Explain says in one sentence, fit for tenants, why no sandbox can be made,
	// if what one said on its standard error tells; else "".
	Explain(stderr string) string
	// Close removes everything that the runtime made. All sandboxes must have
	// ended.
	Close() error
}

// running is a sandbox, whatever runtime started it.
type running interface {
	// Conn is the connection to the guest.
	Conn() *stdio.Conn
	// Exited is closed when the sandbox has ended, for whatever reason.
	Exited() <-chan struct{}
	// OutOfMemory reports whether the host's kernel ended it for memory. It
	// waits for the end of the sandbox, or of ctx.
	OutOfMemory(ctx context.Context) bool
	// Stderr is the last of what it wrote there, for logs.
	Stderr() string
	// Pause freezes every process in it, the guest too; Resume lets them go on.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Destroy ends it and returns when it is gone.
	Destroy(ctx context.Context) error
}

// limits are those of each sandbox.
func (s settings) limits() confine.Limits {
	return confine.Limits{MemoryMB: s.MemoryMB, CPUs: s.CPUs, WorkspaceMB: s.WorkspaceMB, Processes: s.Processes}
}

// newRuntime makes the runtime that the settings name.
func (s settings) newRuntime(ctx context.Context, req sdk.ConfigureRequest, guest string, everywhere []runsc.Mount, logger hclog.Logger) (sandboxRuntime, error) {
	if s.Runtime == runtimeDocker {
		engine, err := docker.Connect(s.DockerHost)
		if err != nil {
			return nil, err
		}
		r, err := docker.New(ctx, engine, docker.Options{
			StateDir: req.StateDir, BrokerID: req.BrokerID, Label: req.Label,
			Runtime: s.DockerRuntime, Image: s.Image, Guest: guest,
			LimitsRequired: runsc.CgroupMode(s.Cgroups) == runsc.CgroupRequired,
			Limits:         s.limits(), Logger: logger,
		})
		if err != nil {
			return nil, err
		}
		return dockerRuntime{r}, nil
	}
	r, err := runsc.New(ctx, runsc.Options{
		StateDir: req.StateDir, AbandonedDirs: req.AbandonedDirs, Name: req.BrokerID + "-" + req.Label,
		Binary: s.Runsc, Guest: guest, Platform: s.Platform, Rootfs: s.Rootfs,
		Cgroups: runsc.CgroupMode(s.Cgroups),
		Limits:  s.limits(), Everywhere: everywhere, Logger: logger,
	})
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInvalidConfig, "%w", err)
	}
	return runscRuntime{r}, nil
}

// runscRuntime makes a sandboxRuntime of runsc's own type.
type runscRuntime struct{ *runsc.Runtime }

func (r runscRuntime) Start(_ context.Context, id string) (running, error) {
	s, err := r.Runtime.Start(id)
	if err != nil {
		return nil, err // not a nil *runsc.Sandbox, which would be no nil
	}
	return s, nil
}

// StartTemplate implements templater.
func (r runscRuntime) StartTemplate(id string, of runsc.Template) (running, error) {
	s, err := r.Runtime.StartTemplate(id, of)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// StartImage implements imager.
func (r runscRuntime) StartImage(id string, image *runsc.Image) (running, error) {
	s, err := r.Runtime.StartImage(id, image)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// StartCopy implements checkpointer.
func (r runscRuntime) StartCopy(ctx context.Context, id string, c *runsc.Checkpoint, of *runsc.Template) (running, error) {
	s, err := r.StartCheckpoint(ctx, id, c, of)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// StartWith implements sharer.
func (r runscRuntime) StartWith(id string, mounts []runsc.Mount) (running, error) {
	s, err := r.Runtime.StartWith(id, mounts)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (runscRuntime) GVisor() bool { return true }

// Check has nothing to ask anybody: what was missing would have been missing at
// the start.
func (runscRuntime) Check(context.Context) error { return nil }

// dockerRuntime makes a sandboxRuntime of docker's own type.
type dockerRuntime struct{ *docker.Runtime }

func (r dockerRuntime) Start(ctx context.Context, id string) (running, error) {
	s, err := r.Runtime.Start(ctx, id)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Explain knows of nothing that Check does not find.
func (dockerRuntime) Explain(string) string { return "" }

// interpreters are the paths that those of languages have in sandboxes.
type interpreters map[sdk.Language]string

// findInterpreters looks for the languages among what sandboxes have.
func (s settings) findInterpreters(ctx context.Context, runtime sandboxRuntime, logger hclog.Logger) (interpreters, error) {
	all := interpreters{}
	for language, names := range map[sdk.Language][]string{
		sdk.Python: {"python3"}, sdk.JavaScript: {"node", "nodejs"}, sdk.Bash: {"bash"},
	} {
		path, found, err := runtime.Interpreter(ctx, names...)
		if err != nil {
			return nil, err
		}
		if !found {
			logger.Warn("a language is missing", "language", string(language), "remedy", "install "+names[0]+" in "+s.origin()+" and restart, if it is wanted")
			continue
		}
		all[language] = path
	}
	if len(all) == 0 {
		return nil, sdk.Errorf(sdk.CodeInvalidConfig, "there is no python3, node or bash in %s for the sandboxes to use: install them there", s.origin())
	}
	return all, nil
}

// origin is where the programs in sandboxes come from.
func (s settings) origin() string {
	switch {
	case s.Runtime == runtimeDocker:
		return "the image " + s.Image
	case s.Rootfs == runsc.HostRootfs:
		return "/usr on the host"
	default:
		return s.Rootfs
	}
}

// setUpRuntime makes the runtime and looks what it has to offer.
func (s settings) setUpRuntime(ctx context.Context, req sdk.ConfigureRequest, everywhere []runsc.Mount, logger hclog.Logger) (sandboxRuntime, interpreters, error) {
	if err := checkOpenFiles(s.MaxSandboxes); err != nil {
		return nil, nil, err
	}
	guest, err := findGuest(s.Guest)
	if err != nil {
		return nil, nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "guest", "%w", err)
	}
	runtime, err := s.newRuntime(ctx, req, guest, everywhere, logger)
	if err != nil {
		return nil, nil, err
	}
	found, err := s.findInterpreters(ctx, runtime, logger)
	if err != nil {
		return nil, nil, errors.Join(err, runtime.Close())
	}
	if weak := runtime.Weakness(); weak != "" {
		logger.Warn("sandboxes are weaker than they could be", "reason", weak)
	}
	return runtime, found, nil
}
