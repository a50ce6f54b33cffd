package provider

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/docker"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Validate implements sdk.SettingsValidator. What it takes a look at are files that
// settings name; what is looked for on the PATH may be another for the broker.
func (p *Provider) Validate(_ context.Context, given sdk.Settings) []sdk.FieldError {
	var s settings
	if err := given.Decode(&s); err != nil {
		return []sdk.FieldError{{Message: err.Error()}}
	}
	var found problems
	if s.PoolSize > s.MaxSandboxes {
		found.addf("pool_size", "must not be above max_sandboxes (%d)", s.MaxSandboxes)
	}
	if s.MaxAge > 0 && s.MaxAge < leastMaxAge {
		found.addf("max_age", "must be at least %s, or 0 for no end", leastMaxAge)
	}
	if s.OneShot == oneShotTenant && s.Packages.On() {
		found.addf("one_shot", "must be %q where packages may be installed: what was installed for one execution is another's", oneShotFresh)
	}
	found.ofRuntime(s)
	found.ofRegistries(s.Registries)
	found = append(found, s.Packages.Validate()...)
	if _, err := s.Policy.Encoded(); err != nil {
		found.add("", err)
	}
	return found
}

// problems of settings, in the order of the schema.
type problems []sdk.FieldError

func (p *problems) addf(field, format string, args ...any) {
	p.add(field, sdk.FieldErrorf(sdk.CodeInvalidConfig, field, format, args...))
}

// add takes an error over, if it is one, with the field that it names itself. What
// this user may not look at the broker's may: that shows at the start.
func (p *problems) add(field string, err error) {
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return
	}
	problem := sdk.FieldError{Field: field, Message: err.Error()}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		problem.Message = e.Message
		if e.Field != "" {
			problem.Field = e.Field
		}
	}
	*p = append(*p, problem)
}

func (p *problems) ofRuntime(s settings) {
	switch {
	case s.Runtime == runtimeDocker && s.Rootfs != runsc.HostRootfs:
		p.addf("rootfs", "is for the runtime %q; with %q, name an image", runtimeRunsc, runtimeDocker)
	case s.Runtime == runtimeDocker:
		client, err := docker.Connect(s.DockerHost)
		if p.add("docker_host", err); err == nil {
			_ = client.Close()
		}
	default:
		p.add("rootfs", runsc.CheckRootfs(s.Rootfs))
		p.add("runsc", runsc.CheckBinary(s.Runsc))
		p.add("platform", runsc.CheckPlatform(s.Platform))
	}
	if _, err := os.Stat(s.Guest); s.Guest != "" && !errors.Is(err, fs.ErrPermission) {
		_, err := findGuest(s.Guest)
		p.add("guest", err)
	}
}
