package pluginhost

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// deathDelay is how long a process may take to be seen dead after its connection
// broke; a few milliseconds in truth. A plugin that lives, and answers
// UNAVAILABLE by itself, is that much slower.
const deathDelay = 200 * time.Millisecond

// timerSlack is how far two timers of one deadline may be apart.
const timerSlack = 10 * time.Millisecond

// boundProvider is a plugin's provider bound to the life of its process. The calls
// of sdk.Provider explain their errors; those of capabilities, which come from
// the client as they are, are explained by whoever makes them.
type boundProvider struct {
	*wire.Client
	process *Process
}

var (
	_ sdk.Provider         = (*boundProvider)(nil)
	_ sdk.PackageInstaller = (*boundProvider)(nil)
	_ sdk.TemplateBuilder  = (*boundProvider)(nil)
	_ sdk.NetworkGovernor  = (*boundProvider)(nil)
)

// Explain finds out whose end the error of a capability's call is about, names
// the provider and takes its secrets out.
func (b *boundProvider) Explain(ctx context.Context, err error) error { return b.failed(ctx, err) }

func (b *boundProvider) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	b.process.runner.log.hide(redact.Secrets(b.Describe().Schema, req.Settings))
	err := b.Client.Configure(ctx, req)
	if err == nil {
		b.process.configured.Store(true)
	}
	return b.failed(ctx, err)
}

// Validate asks the plugin what is wrong with settings, before it is configured. The
// problems name settings of its schema, or none.
func (b *boundProvider) Validate(ctx context.Context, settings sdk.Settings) ([]sdk.FieldError, error) {
	b.process.runner.log.hide(redact.Secrets(b.Describe().Schema, settings))
	problems, err := b.Client.Validate(ctx, settings)
	for i, p := range problems {
		problems[i] = sdk.FieldError{Field: b.clean(p.Field), Message: b.clean(p.Message)}
	}
	return problems, b.failed(ctx, err)
}

func (b *boundProvider) Health(ctx context.Context) (sdk.Health, error) {
	health, err := b.Client.Health(ctx)
	health.Reason = b.clean(health.Reason)
	b.cleanAll(health.Details)
	for i, m := range health.Metrics {
		health.Metrics[i].Help = b.clean(m.Help)
		b.cleanAll(m.Labels)
	}
	return health, b.failed(ctx, err)
}

func (b *boundProvider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	b.hideNetwork(req.Network)
	instance, err := b.Client.Create(ctx, req)
	b.worked(err)
	b.cleanAll(instance.Metadata)
	return instance, b.failed(ctx, err)
}

func (b *boundProvider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	heard := &heardOutput{out: out}
	result, err := b.Client.Execute(ctx, req, heard)
	if heard.err != nil {
		return result, heard.err
	}
	b.worked(err)
	b.cleanResult(&result)
	return result, b.failed(ctx, err)
}

// InstallPackages is explained here, since it is a part of executions too.
func (b *boundProvider) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	heard := &heardOutput{out: out}
	result, err := b.Client.InstallPackages(ctx, req, heard)
	if heard.err != nil {
		return result, heard.err
	}
	b.cleanResult(&result)
	return result, b.failed(ctx, err)
}

// BuildTemplate is explained here: no request of an instance asks for it.
func (b *boundProvider) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	var unheard error
	built, err := b.Client.BuildTemplate(ctx, req, func(step sdk.TemplateProgress) error {
		step.Step = b.clean(step.Step)
		unheard = progress(step)
		return unheard
	})
	if unheard != nil {
		return built, unheard
	}
	return built, b.failed(ctx, err)
}

// ListTemplates is explained here, as BuildTemplate is.
func (b *boundProvider) ListTemplates(ctx context.Context) ([]sdk.BuiltTemplate, error) {
	built, err := b.Client.ListTemplates(ctx)
	return built, b.failed(ctx, err)
}

// RemoveTemplate is explained here, as BuildTemplate is.
func (b *boundProvider) RemoveTemplate(ctx context.Context, image string) error {
	return b.failed(ctx, b.Client.RemoveTemplate(ctx, image))
}

// SetNetwork hides the secrets of the policy from whatever the plugin says from now on.
func (b *boundProvider) SetNetwork(ctx context.Context, instanceID string, policy sdk.NetworkPolicy) error {
	b.hideNetwork(&policy)
	return b.Client.SetNetwork(ctx, instanceID, policy)
}

// FollowNetwork is explained here, since nobody asks for it who could.
func (b *boundProvider) FollowNetwork(ctx context.Context, report func(sdk.NetworkReport) error) error {
	return b.Client.FollowNetwork(ctx, func(r sdk.NetworkReport) error {
		for i, c := range r.Connections {
			r.Connections[i].Host, r.Connections[i].Method, r.Connections[i].Reason = b.clean(c.Host), b.clean(c.Method), b.clean(c.Reason)
		}
		return report(r)
	})
}

func (b *boundProvider) hideNetwork(policy *sdk.NetworkPolicy) {
	if policy == nil {
		return
	}
	var secrets []string
	for _, s := range policy.Secrets {
		secrets = append(secrets, s.Value)
	}
	if len(secrets) > 0 {
		b.process.runner.log.hide(secrets)
	}
}

func (b *boundProvider) cleanResult(result *sdk.ExecuteResult) {
	result.Detail = b.clean(result.Detail)
	for i, f := range result.Findings {
		result.Findings[i].Rule, result.Findings[i].Message = b.clean(f.Rule), b.clean(f.Message)
	}
}

func (b *boundProvider) Destroy(ctx context.Context, instanceID string) error {
	return b.failed(ctx, b.Client.Destroy(ctx, instanceID))
}

func (b *boundProvider) List(ctx context.Context) ([]sdk.Instance, error) {
	instances, err := b.Client.List(ctx)
	for _, i := range instances {
		b.cleanAll(i.Metadata)
	}
	return instances, b.failed(ctx, err)
}

// worked remembers that the process has been of use.
func (b *boundProvider) worked(err error) {
	if err == nil && !b.process.worked.Load() { // the flag is shared by all calls
		b.process.worked.Store(true)
	}
}

// clean keeps the plugin's secrets, and what would steer a terminal, out of what
// it says to people.
func (b *boundProvider) clean(text string) string {
	return validtext.Printable(b.process.runner.log.clean(text))
}

// longError is the length in bytes from which on the text of an error may be one that
// was cut, by the SDK that sent it or by ours: see sdk.Error.
const longError = 4<<10 - 8

// cleanError is clean for the texts of an error.
func (b *boundProvider) cleanError(text string) string {
	if len(text) < longError {
		return b.clean(text)
	}
	// A character that was cut in two is no part of a secret any more.
	return validtext.Printable(b.process.runner.log.redactor().Part(strings.TrimRight(text, "\uFFFD")))
}

func (b *boundProvider) cleanAll(facts map[string]string) {
	for _, name := range slices.Collect(maps.Keys(facts)) {
		value := facts[name]
		delete(facts, name)
		facts[b.clean(name)] = b.clean(value)
	}
}

// failed finds out whose end an error is about and names the provider.
func (b *boundProvider) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	label := b.process.label
	// A broken connection is the first sign of a death. The caller's next
	// call shall find the next process, so the death itself comes first.
	if errors.Is(err, wire.ErrPluginGone) {
		b.process.diesWithin(deathDelay)
	}
	// An ended call may be due to our own closing of the connection after a
	// death.
	endOfContext := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case endOfContext && hasEnded(ctx):
		return named(label, err)
	case errors.Is(err, wire.ErrPluginGone) && b.process.alive():
		return sdk.Errorf(sdk.CodeUnavailable, "provider %q: %w during the call", label, brokenConnection{})
	case endOfContext && !b.process.alive(), errors.Is(err, wire.ErrPluginGone):
		return sdk.Errorf(sdk.CodeUnavailable, "provider %q: %w during the call", label, wire.ErrPluginGone)
	case endOfContext:
		return sdk.Errorf(sdk.CodeUnavailable, "provider %q: gave up on the call: %w", label, err)
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		copied := *e
		copied.Message, copied.Field = b.cleanError(e.Message), b.cleanError(e.Field)
		copied.Capability = sdk.Capability(b.cleanError(string(e.Capability)))
		return named(label, &copied)
	}
	return named(label, err)
}

// brokenConnection stands for wire.ErrPluginGone where the process lives: it may go on
// with what it was asked for.
type brokenConnection struct{}

func (brokenConnection) Error() string {
	return wire.ErrPluginGone.Error() + ", or its connection did,"
}

func (brokenConnection) Unwrap() error { return wire.ErrPluginGone }

// ProcessLives is what package instance looks for.
func (brokenConnection) ProcessLives() bool { return true }

// hasEnded reports whether ctx is over. The plugin has the same deadline, and its
// answer to that may overtake our own timer; then the timer is waited for.
func hasEnded(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < timerSlack {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// heardOutput remembers that the listener failed, which is not the provider's
// fault. The wire client writes from one goroutine.
type heardOutput struct {
	out sdk.Output
	err error
}

func (h *heardOutput) Stdout(p []byte) error {
	h.err = h.out.Stdout(p)
	return h.err
}

func (h *heardOutput) Stderr(p []byte) error {
	h.err = h.out.Stderr(p)
	return h.err
}

func (h *heardOutput) Artifact(a sdk.Artifact) error {
	h.err = h.out.Artifact(a)
	return h.err
}
