package provider

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/confine"
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

// newRuntime makes the runtime that the settings name.
func (p *Provider) newRuntime(ctx context.Context, req sdk.ConfigureRequest, guest string) (sandboxRuntime, error) {
	limits := confine.Limits{
		MemoryMB: p.settings.MemoryMB, CPUs: p.settings.CPUs,
		WorkspaceMB: p.settings.WorkspaceMB, Processes: p.settings.Processes,
	}
	if p.settings.Runtime == runtimeDocker {
		engine, err := docker.Connect(p.settings.DockerHost)
		if err != nil {
			return nil, err
		}
		r, err := docker.New(ctx, engine, docker.Options{
			StateDir: req.StateDir, BrokerID: req.BrokerID, Label: req.Label,
			Runtime: p.settings.DockerRuntime, Image: p.settings.Image, Guest: guest,
			LimitsRequired: runsc.CgroupMode(p.settings.Cgroups) == runsc.CgroupRequired,
			Limits:         limits, Logger: p.logger,
		})
		if err != nil {
			return nil, err
		}
		return dockerRuntime{r}, nil
	}
	r, err := runsc.New(ctx, runsc.Options{
		StateDir: req.StateDir, AbandonedDirs: req.AbandonedDirs, Name: req.BrokerID + "-" + req.Label,
		Binary: p.settings.Runsc, Guest: guest, Platform: p.settings.Platform, Rootfs: p.settings.Rootfs,
		Cgroups: runsc.CgroupMode(p.settings.Cgroups),
		Limits:  limits, Logger: p.logger,
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

// StartImage implements imager.
func (r runscRuntime) StartImage(id string, image *runsc.Image) (running, error) {
	s, err := r.Runtime.StartImage(id, image)
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

// findInterpreters looks for the languages among what sandboxes have.
func (p *Provider) findInterpreters(ctx context.Context) error {
	p.interpreters = map[string]string{}
	for language, names := range map[sdk.Language][]string{
		sdk.Python: {"python3"}, sdk.JavaScript: {"node", "nodejs"}, sdk.Bash: {"bash"},
	} {
		path, found, err := p.runtime.Interpreter(ctx, names...)
		if err != nil {
			return err
		}
		if !found {
			p.logger.Warn("a language is missing", "language", string(language), "remedy", "install "+names[0]+" in "+p.origin()+" and restart, if it is wanted")
			continue
		}
		p.interpreters[string(language)] = path
	}
	if len(p.interpreters) == 0 {
		return sdk.Errorf(sdk.CodeInvalidConfig, "there is no python3, node or bash in %s for the sandboxes to use: install them there", p.origin())
	}
	return nil
}

// origin is where the programs in sandboxes come from.
func (p *Provider) origin() string {
	switch {
	case p.settings.Runtime == runtimeDocker:
		return "the image " + p.settings.Image
	case p.settings.Rootfs == runsc.HostRootfs:
		return "/usr on the host"
	default:
		return p.settings.Rootfs
	}
}

// setUpRuntime makes the runtime and looks what it has to offer.
func (p *Provider) setUpRuntime(ctx context.Context, req sdk.ConfigureRequest) error {
	if err := checkOpenFiles(p.settings.MaxSandboxes); err != nil {
		return err
	}
	guest, err := findGuest(p.settings.Guest)
	if err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "guest", "%w", err)
	}
	if p.runtime, err = p.newRuntime(ctx, req, guest); err != nil {
		return err
	}
	if err := p.findInterpreters(ctx); err != nil {
		return errors.Join(err, p.runtime.Close())
	}
	if weak := p.runtime.Weakness(); weak != "" {
		p.logger.Warn("sandboxes are weaker than they could be", "reason", weak)
	}
	return nil
}
