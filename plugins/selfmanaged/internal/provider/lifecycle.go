package provider

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.Pauser        = (*Provider)(nil)
	_ sdk.PauseReleaser = (*Provider)(nil)
	_ sdk.TTLSetter     = (*Provider)(nil)
	_ sdk.Meter         = (*Provider)(nil)
	_ sdk.Interrupter   = (*Provider)(nil)
)

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if !p.configured.Load() {
		return sdk.Instance{}, sdk.Errorf(sdk.CodeNotInitialized, "not configured")
	}
	return p.instances.once(ctx, req.IdempotencyKey, func() (sdk.Instance, error) { return p.create(ctx, req) })
}

func (p *Provider) create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if req.Snapshot != nil && len(req.Volumes) > 0 {
		refused := sdk.FieldErrorf(sdk.CodeNotSupported, "volumes", "what goes on from a snapshot has no volumes: they are given to a fresh instance")
		refused.Capability, refused.NoEffect = sdk.CapabilityVolumes, true
		return sdk.Instance{}, refused
	}
	if req.Snapshot != nil {
		return p.createCopy(ctx, req)
	}
	language := languageOf(req.Template)
	switch {
	case req.Image != "":
		if err := p.templates.check(req.Image); err != nil {
			return sdk.Instance{}, err
		}
	case language == "":
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "must be one of python, nodejs, bash")
	case p.sandboxes.interpreters[language] == "":
		return sdk.Instance{}, sdk.Errorf(sdk.CodeCreateFailed, "there is no %s for the sandboxes of this provider to use, so there are no %s sandboxes", language, req.Template)
	}
	// What has had a network may have kept something of it.
	reuse := req.Network == nil && len(req.Volumes) == 0 && p.instances.reuse.wanted(req)
	wanted := pool.Request{
		Template: kindOf(req), Tenant: req.Labels[sdk.LabelTenant], Patience: p.settings.QueueTimeout,
		Reuse: reuse, MaxQueue: req.MaxQueue,
	}
	var s *sandbox
	var err error
	if len(req.Volumes) > 0 {
		s, err = p.acquireWith(ctx, wanted, req.Volumes)
	} else {
		s, err = p.pool.Acquire(ctx, wanted)
	}
	if err != nil {
		return sdk.Instance{}, err
	}
	return p.begin(ctx, req, s, reuse)
}

// begin makes an instance of a sandbox that has a place in the pool.
func (p *Provider) begin(ctx context.Context, req sdk.CreateRequest, s *sandbox, reuse bool) (sdk.Instance, error) {
	now := time.Now()
	i := &instance{
		Instance: sdk.Instance{
			ID: s.instanceID(), Template: req.Template, Labels: maps.Clone(req.Labels), CreatedAt: now,
			Metadata: factsOf(p, s.limits),
		},
		body: body{in: s, gone: make(chan struct{})}, kind: kindOf(req), env: s.environment(req.Env), key: req.IdempotencyKey, reuse: reuse,
		among: p.instances, logger: p.logger, volumes: len(req.Volumes) > 0,
	}
	if req.TTL > 0 {
		i.ExpiresAt = now.Add(req.TTL)
	}
	if !p.instances.add(i) {
		return sdk.Instance{}, errors.Join(sdk.Errorf(sdk.CodeUnavailable, "the provider is shutting down"), p.instances.end(ctx, i))
	}
	if req.Network != nil {
		if err := i.setNetwork(ctx, p.gateway, *req.Network); err != nil {
			return sdk.Instance{}, errors.Join(err, p.discard(ctx, i))
		}
	}
	serve(p, i)
	return i.Instance, nil
}

// serve answers what programs of an instance ask for, as long as it is in its sandbox.
func serve(p *Provider, i *instance) {
	if p.sandboxes.packages {
		go i.serveRequested(i.sandbox(), p.InstallPackages)
	}
}

// kindOf is what an instance is made of, as the pool names it.
func kindOf(req sdk.CreateRequest) string {
	if req.Image != "" {
		return req.Image
	}
	return req.Template
}

// discard ends an instance that nobody was told of.
func (p *Provider) discard(ctx context.Context, i *instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	defer cancel()
	if p.instances.take(i.ID) == nil {
		return nil
	}
	return p.instances.end(ctx, i)
}

// factsOf are what is true of each instance. What its files may take is on two file systems.
func factsOf(p *Provider, of confine.Limits) map[string]string {
	return map[string]string{
		"runtime":            p.settings.Runtime,
		sdk.MetadataCPUs:     strconv.FormatFloat(of.CPUs, 'f', -1, 64),
		sdk.MetadataMemoryMB: strconv.FormatInt(of.MemoryMB, 10),
		sdk.MetadataDiskMB:   strconv.FormatInt(2*of.WorkspaceMB, 10),
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
	if err := i.sandbox().runs(req.Language); err != nil && req.ContextID == "" {
		return sdk.ExecuteResult{}, err
	}
	return i.execute(ctx, req, out)
}

// Interrupt implements sdk.Interrupter.
func (p *Provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	i := p.instances.lookUp(instanceID)
	if i == nil {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	err := i.sandbox().guest.Interrupt(ctx, executionID, p.interruptGrace)
	if errors.Is(err, guestclient.ErrGone) {
		return sdk.Errorf(sdk.CodeNotFound, "the sandbox has ended, and the execution with it")
	}
	return err
}

// Pause implements sdk.Pauser.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	_, err := p.PauseReleasing(ctx, instanceID)
	return err
}

// PauseReleasing implements sdk.PauseReleaser.
func (p *Provider) PauseReleasing(ctx context.Context, instanceID string) (released bool, err error) {
	i, err := p.instances.find(instanceID)
	if err != nil {
		return false, err
	}
	return i.pause(ctx, p.asides)
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	i, err := p.instances.find(instanceID)
	if err != nil {
		return err
	}
	return i.resume(ctx, p.asides, func() { serve(p, i) })
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
