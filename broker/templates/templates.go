// Package templates has the templates of the configuration built on the providers that can,
// ahead of need, and knows what there is of each.
//
// A Builder follows the configuration in force. What it has built of an image it pins: the
// same image is built again on another provider and after a restart, whatever its tag
// stands for by then, until somebody asks for it to be built anew. What the configuration
// does not name any more is removed from the providers.
//
// How an image becomes something that sandboxes are made of is the plugins' business.
package templates

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

const (
	// buildTimeout bounds one build: images are large and registries slow.
	buildTimeout = time.Hour
	// sweepTimeout bounds the removal of what is not needed any more.
	sweepTimeout = time.Minute
	// parallel is how many builds run at a time: each takes a processor.
	parallel = 2
	// retryAfter is when who is refused for a build that goes on may ask again.
	retryAfter = 5 * time.Second
	// keptSteps is how many steps of a build are kept to be looked at.
	keptSteps = 50
)

// Provider is one that may build templates.
type Provider interface {
	Label() string
	Description() sdk.Description
	// Provider waits until it can be asked.
	Provider(ctx context.Context) (sdk.Provider, error)
}

// Pin is what an image was found to be.
type Pin struct {
	// Of is what the configuration calls it.
	Of string `json:"of"`
	// Source is its sum, as sdk.BuiltTemplate has it.
	Source string `json:"source"`
}

// Pins keep pins by the name of the template.
type Pins interface {
	Load() (map[string]Pin, error)
	// Save returns when the pin is durable.
	Save(ctx context.Context, name string, pin Pin) error
	// Forget removes those that are not in use.
	Forget(ctx context.Context, used func(name string) bool) error
}

// State of a template on a provider.
type State string

// The states.
const (
	Building State = "building"
	Ready    State = "ready"
	Failed   State = "failed"
)

// Status is what there is of a template on one provider.
type Status struct {
	Name, Provider string
	State          State
	// Reason says why the last build has failed; Code is its code.
	Reason string
	Code   sdk.Code
	// Steps of the build that goes on, or of the last one, the latest last.
	Steps []sdk.TemplateProgress
	// Began is when it began, Ended when it ended; zero for not yet.
	Began, Ended time.Time
	// Built is what instances are made of: while another build goes on, of the one before;
	// nil for nothing.
	Built *sdk.BuiltTemplate
}

// Options of a Builder.
type Options struct {
	Pins   Pins
	Logger hclog.Logger
	// Life ends when the providers are about to be stopped.
	Life context.Context
	// Tasks has the builds.
	Tasks *background.Group
}

// Builder builds templates.
type Builder struct {
	o     Options
	room  chan struct{}
	names keylock.Locks[string]

	mu        sync.Mutex
	pins      map[string]Pin
	templates []config.Template
	entries   map[key]*entry
}

// key is a template on a provider.
type key struct{ name, label string }

// entry is what is known of it.
type entry struct {
	Status
	spec     config.Template
	provider Provider
	cancel   context.CancelFunc
}

// New returns a builder that builds nothing yet.
func New(o Options) (*Builder, error) {
	pins, err := o.Pins.Load()
	if err != nil {
		return nil, err
	}
	return &Builder{o: o, room: make(chan struct{}, parallel), pins: pins, entries: map[key]*entry{}}, nil
}

// Follow has the templates of the configuration in force built on its providers.
func (b *Builder) Follow(all []config.Template, providers []Provider) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.templates = all
	reload := origin.With(b.o.Life, origin.Origin{Cause: origin.Reload})
	kept := map[key]bool{}
	for _, p := range providers {
		if !slices.Contains(p.Description().Capabilities, sdk.CapabilityTemplates) {
			continue
		}
		for _, t := range all {
			if !t.On(p.Label()) {
				continue
			}
			k := key{t.Name, p.Label()}
			kept[k] = true
			if e := b.entries[k]; e == nil || e.provider != p || !reflect.DeepEqual(e.spec, t) || e.State == Failed {
				b.begin(reload, k, t, p, false)
			}
		}
		b.sweepSoon(p)
	}
	for k, e := range b.entries {
		if !kept[k] {
			e.cancel()
			delete(b.entries, k)
		}
	}
	b.o.Tasks.Go("forget pins of templates", func() {
		if err := b.o.Pins.Forget(b.o.Life, b.has); err != nil && b.o.Life.Err() == nil {
			b.o.Logger.Warn("the pins of templates that were removed could not be", "error", err)
		}
	})
}

func (b *Builder) has(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.templates, func(t config.Template) bool { return t.Name == name })
}

// begin starts a build in place of what there is. It is called with the lock held.
func (b *Builder) begin(life context.Context, k key, t config.Template, p Provider, anew bool) {
	ctx, cancel := context.WithCancel(life)
	e := &entry{Status: Status{Name: k.name, Provider: k.label, State: Building, Began: time.Now()}, spec: t, provider: p, cancel: cancel}
	if before := b.entries[k]; before != nil {
		before.cancel()
		e.Built = before.Built
	}
	b.entries[k] = e
	b.o.Tasks.Go("build the template "+k.name, func() {
		defer cancel()
		b.build(ctx, e, anew)
	})
}

// build builds until that succeeds, or until it is known that it will not.
func (b *Builder) build(ctx context.Context, e *entry, anew bool) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = time.Second, 5*time.Minute
	for {
		built, err := b.once(ctx, e, anew)
		if ctx.Err() != nil {
			return // it is another's, or nobody's
		}
		b.mu.Lock()
		e.Ended = time.Now()
		if err == nil {
			e.State, e.Built, e.Reason, e.Code = Ready, &built, "", ""
		} else {
			e.State, e.Code, e.Reason = Failed, sdk.CodeOf(err), reason(err)
		}
		b.mu.Unlock()
		if err == nil {
			b.o.Logger.Info("a template is ready", "template", e.Name, "provider", e.provider.Label(), "image", built.Image, "source", built.Source, "bytes", built.Bytes)
			b.sweep(ctx, e.provider)
			return
		}
		b.o.Logger.Error("a template could not be built", "template", e.Name, "provider", e.provider.Label(), "error", err)
		if !passing(sdk.CodeOf(err)) {
			return
		}
		wait := time.NewTimer(pause.NextBackOff())
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
		b.mu.Lock()
		e.State, e.Began, e.Ended, e.Steps = Building, time.Now(), time.Time{}, nil
		b.mu.Unlock()
	}
}

// passing reports whether what failed with a code may succeed later by itself.
func passing(c sdk.Code) bool {
	switch c {
	case sdk.CodeConnectionFailed, sdk.CodeUnavailable, sdk.CodeQuotaExceeded, sdk.CodeCreateFailed, sdk.CodeConflict:
		return true
	default:
		return false
	}
}

func reason(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		if e.Field != "" {
			return e.Field + " " + e.Message
		}
		return e.Message
	}
	return "the log of the broker says why"
}

// once builds once.
func (b *Builder) once(ctx context.Context, e *entry, anew bool) (sdk.BuiltTemplate, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	// One after the other, so that the second provider gets what the first has found.
	unlock, err := b.names.Take(ctx, e.Name)
	if err != nil {
		return sdk.BuiltTemplate{}, err
	}
	defer unlock()
	select {
	case b.room <- struct{}{}:
		defer func() { <-b.room }()
	case <-ctx.Done():
		return sdk.BuiltTemplate{}, ctx.Err()
	}
	p, err := e.provider.Provider(ctx)
	if err != nil {
		return sdk.BuiltTemplate{}, err
	}
	builder, ok := p.(sdk.TemplateBuilder)
	if !ok {
		return sdk.BuiltTemplate{}, sdk.NotSupported(e.provider.Label(), sdk.CapabilityTemplates)
	}
	req := request(e.spec)
	if !anew {
		req.Source = b.pinned(e.spec)
	}
	built, err := builder.BuildTemplate(ctx, req, func(step sdk.TemplateProgress) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		e.step(step)
		return nil
	})
	if err != nil {
		return sdk.BuiltTemplate{}, err
	}
	return built, b.pin(ctx, e.spec, built.Source)
}

// step notes what a build does. Of one step the last is kept.
func (e *entry) step(step sdk.TemplateProgress) {
	if last := len(e.Steps) - 1; last >= 0 && e.Steps[last].Step == step.Step {
		step.Total = max(step.Total, e.Steps[last].Total)
		e.Steps[last] = step
		return
	}
	e.Steps = append(e.Steps, step)
	e.Steps = e.Steps[max(0, len(e.Steps)-keptSteps):]
}

func request(t config.Template) sdk.BuildTemplateRequest {
	return sdk.BuildTemplateRequest{
		Name: t.Name, From: t.From, Rootfs: t.Rootfs, Packages: t.Packages, Env: t.Env, Start: t.Start, Ready: t.Ready, MemoryMB: t.MemoryMB, CPUs: t.CPUs,
		Dockerfile: t.Dockerfile, Context: t.Context, BuildArgs: t.BuildArgs, Network: t.Network,
	}
}

// sourceOf is what the configuration calls the image of a template.
func sourceOf(t config.Template) string {
	if t.Dockerfile != "" {
		args, _ := json.Marshal(t.BuildArgs) // of a map of strings
		return "dockerfile\n" + t.Dockerfile + "\n" + t.Context + "\n" + string(args)
	}
	return t.From + "\n" + t.Rootfs
}

func (b *Builder) pinned(t config.Template) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pin := b.pins[t.Name]; pin.Of == sourceOf(t) {
		return pin.Source
	}
	return ""
}

func (b *Builder) pin(ctx context.Context, t config.Template, source string) error {
	pin := Pin{Of: sourceOf(t), Source: source}
	b.mu.Lock()
	same := b.pins[t.Name] == pin
	b.pins[t.Name] = pin
	b.mu.Unlock()
	if same {
		return nil
	}
	return b.o.Pins.Save(ctx, t.Name, pin)
}

// sweepSoon sweeps in the background.
func (b *Builder) sweepSoon(p Provider) {
	b.o.Tasks.Go("sweep templates", func() { b.sweep(b.o.Life, p) })
}

// sweep removes from a provider what the configuration does not name. It does nothing
// while something is being built there, after which it comes again.
func (b *Builder) sweep(ctx context.Context, p Provider) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	needed, busy := b.needed(p)
	if busy {
		return
	}
	served, err := p.Provider(ctx)
	if err != nil {
		return // it is not there to be swept
	}
	builder, ok := served.(sdk.TemplateBuilder)
	if !ok {
		return
	}
	there, err := builder.ListTemplates(ctx)
	if err != nil {
		if sdk.CodeOf(err) != sdk.CodeNotSupported && ctx.Err() == nil {
			b.o.Logger.Warn("the templates of a provider could not be listed", "provider", p.Label(), "error", err)
		}
		return
	}
	for _, t := range there {
		if slices.Contains(needed, t.Image) {
			continue
		}
		if _, busy := b.needed(p); busy {
			return
		}
		if err := builder.RemoveTemplate(ctx, t.Image); err != nil && ctx.Err() == nil {
			b.o.Logger.Warn("a template that is not in the configuration any more could not be removed", "provider", p.Label(), "template", t.Name, "image", t.Image, "error", err)
		}
	}
}

// needed are the images of a provider that the configuration names, and whether others
// are about to be.
func (b *Builder) needed(p Provider) (images []string, busy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, e := range b.entries {
		if k.label != p.Label() {
			continue
		}
		if e.provider != p || e.State == Building {
			return nil, true
		}
		if e.Built != nil {
			images = append(images, e.Built.Image)
		}
	}
	return images, false
}

// Build builds a template anew on all providers: of what its image stands for now.
func (b *Builder) Build(ctx context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := false
	for k, e := range b.entries {
		if k.name == name {
			found = true
			b.begin(origin.With(b.o.Life, origin.Of(ctx)), k, e.spec, e.provider, true)
		}
	}
	if !found {
		return sdk.FieldErrorf(sdk.CodeNotFound, "name", "there is no template of that name that a provider could build")
	}
	return nil
}

// Statuses are those of the templates that a tenant may use, in the order of the
// configuration; with no tenant, of all.
func (b *Builder) Statuses(tenant string) []Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Status, 0, len(b.entries))
	for _, t := range b.templates {
		if tenant != "" && !t.For(tenant) {
			continue
		}
		var of []Status
		for k, e := range b.entries {
			if k.name == t.Name {
				status := e.Status
				status.Steps = slices.Clone(status.Steps)
				of = append(of, status)
			}
		}
		slices.SortFunc(of, func(x, y Status) int {
			if x.Provider < y.Provider {
				return -1
			}
			return 1
		})
		all = append(all, of...)
	}
	return all
}

// Find returns what instances of a template are made of on a provider. known is false for
// one that is no template of the configuration, or is not built there.
func (b *Builder) Find(provider, name string) (built sdk.BuiltTemplate, known bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[key{name, provider}]
	switch {
	case e == nil:
		return sdk.BuiltTemplate{}, false, nil
	case e.Built != nil:
		return *e.Built, true, nil
	case e.State == Failed:
		return sdk.BuiltTemplate{}, true, sdk.FieldErrorf(sdk.CodeUnavailable, "template", "could not be built on %q: the administrator sees why", provider)
	default:
		wait := sdk.FieldErrorf(sdk.CodeUnavailable, "template", "is being built on %q", provider)
		wait.RetryAfter = retryAfter
		return sdk.BuiltTemplate{}, true, wait
	}
}
