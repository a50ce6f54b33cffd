package provider

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.Pauser      = (*Provider)(nil)
	_ sdk.TTLSetter   = (*Provider)(nil)
	_ sdk.Meter       = (*Provider)(nil)
	_ sdk.Interrupter = (*Provider)(nil)
)

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if !p.configured.Load() {
		return sdk.Instance{}, sdk.Errorf(sdk.CodeNotInitialized, "not configured")
	}
	return p.instances.once(ctx, req.IdempotencyKey, func() (sdk.Instance, error) { return p.create(ctx, req) })
}

func (p *Provider) create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	language := languageOf(req.Template)
	switch {
	case language == "":
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "must be one of python, nodejs, bash")
	case p.sandboxes.interpreters[language] == "":
		return sdk.Instance{}, sdk.Errorf(sdk.CodeCreateFailed, "there is no %s for the sandboxes of this provider to use, so there are no %s sandboxes", language, req.Template)
	}
	reuse := p.instances.reuse.wanted(req)
	s, err := p.pool.Acquire(ctx, pool.Request{
		Template: req.Template, Tenant: req.Labels[sdk.LabelTenant], Patience: p.settings.QueueTimeout,
		Reuse: reuse, MaxQueue: req.MaxQueue,
	})
	if err != nil {
		return sdk.Instance{}, err
	}
	now := time.Now()
	i := &instance{
		Instance: sdk.Instance{
			ID: s.instanceID(), Template: req.Template, Labels: maps.Clone(req.Labels), CreatedAt: now,
			Metadata: p.facts(),
		},
		sandbox: s, env: maps.Clone(req.Env), key: req.IdempotencyKey, reuse: reuse,
		among: p.instances, logger: p.logger,
	}
	if req.TTL > 0 {
		i.ExpiresAt = now.Add(req.TTL)
	}
	if !p.instances.add(i) {
		return sdk.Instance{}, errors.Join(sdk.Errorf(sdk.CodeUnavailable, "the provider is shutting down"), p.instances.end(ctx, i))
	}
	if p.sandboxes.packages {
		go i.serveRequested(p.InstallPackages)
	}
	return i.Instance, nil
}

// facts are what is true of each instance. What its files may take is on two file systems.
func (p *Provider) facts() map[string]string {
	return map[string]string{
		"runtime":            p.settings.Runtime,
		sdk.MetadataCPUs:     strconv.FormatFloat(p.settings.CPUs, 'f', -1, 64),
		sdk.MetadataMemoryMB: strconv.FormatInt(p.settings.MemoryMB, 10),
		sdk.MetadataDiskMB:   strconv.FormatInt(2*p.settings.WorkspaceMB, 10),
	}
}

// Execute implements sdk.Provider.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	i, err := p.instances.find(req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	if req.Language == sdk.Bash && req.Arguments != nil {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main to give them to; use env")
	}
	return i.execute(ctx, req, out)
}

// Interrupt implements sdk.Interrupter.
func (p *Provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	i := p.instances.lookUp(instanceID)
	if i == nil {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	err := i.sandbox.guest.Interrupt(ctx, executionID, p.interruptGrace)
	if errors.Is(err, guestclient.ErrGone) {
		return sdk.Errorf(sdk.CodeNotFound, "the sandbox has ended, and the execution with it")
	}
	return err
}

// Pause implements sdk.Pauser.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	i, err := p.instances.find(instanceID)
	if err != nil {
		return err
	}
	return i.pause(ctx)
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	i, err := p.instances.find(instanceID)
	if err != nil {
		return err
	}
	return i.resume(ctx)
}

// SetTTL implements sdk.TTLSetter.
func (p *Provider) SetTTL(_ context.Context, instanceID string, ttl time.Duration) (time.Time, error) {
	if ttl <= 0 {
		return time.Time{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be positive")
	}
	return p.instances.setTTL(instanceID, ttl)
}

// InstanceMetrics implements sdk.Meter.
func (p *Provider) InstanceMetrics(ctx context.Context, instanceID string) (sdk.InstanceMetrics, error) {
	i, err := p.instances.find(instanceID)
	if err != nil {
		return sdk.InstanceMetrics{}, err
	}
	return i.metrics(ctx)
}

// Destroy implements sdk.Provider.
func (p *Provider) Destroy(ctx context.Context, instanceID string) error {
	i := p.instances.take(instanceID)
	if i == nil {
		return nil
	}
	return p.instances.end(ctx, i)
}

// List implements sdk.Provider. A self-managed instance ends with the process
// that made it, so all of them are this broker's.
func (p *Provider) List(context.Context) ([]sdk.Instance, error) {
	return p.instances.list(), nil
}
