// Package instancetest holds a small real provider for tests of the packages
// around instance: it keeps instances in memory and runs no code, but does what
// the test's hooks say.
package instancetest

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Provider is an in-process provider, ready from the start. Set its fields
// before it is used.
type Provider struct {
	Name string
	// OnCreate, OnExecute, OnDestroy and OnList stand before the provider's
	// own work when they are set; an error of theirs is the answer.
	OnCreate  func(ctx context.Context, req sdk.CreateRequest) error
	OnExecute func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error)
	OnDestroy func(ctx context.Context, id string) error
	// OnInterrupt, if set, makes this a provider that can interrupt.
	OnInterrupt func(ctx context.Context, instanceID, executionID string) error
	OnList      func(ctx context.Context) error
	// OnPause, if set, answers Pause and Resume, which are capabilities then.
	OnPause func(ctx context.Context, id string, pause bool) error
	// Releases says that what is paused holds no memory.
	Releases bool
	// OnMeasure, if set, makes this a provider that measures its instances.
	OnMeasure func(ctx context.Context, id string) (sdk.InstanceMetrics, error)
	// OnDialPort, if set, makes this a provider whose instances have ports.
	OnDialPort func(ctx context.Context, id string, port uint16) (net.Conn, error)
	// OnCheckPackages may refuse what is to be installed.
	OnCheckPackages func(ctx context.Context, language sdk.Language, requirements []string) error
	// OnListContexts, if set, makes this a provider with contexts, which it lists.
	OnListContexts func(ctx context.Context, instanceID string) ([]sdk.CodeContext, error)
	// OnCreateContext makes one for a provider that has OnListContexts too; unset, there
	// are too many.
	OnCreateContext func(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error)
	// OnInstall, if set, makes this a provider that can install packages.
	OnInstall func(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error)
	// OnWait is what Provider(ctx), the wait for readiness, does.
	OnWait func(ctx context.Context) error
	// Snapshots, if set, make this a provider that can keep its instances as they are.
	Snapshots *Snapshots
	// Capabilities beside those of the fields above.
	Capabilities []sdk.Capability
	// SameID, if set, is the ID of every instance.
	SameID string
	// OwnLife, if set, is how long after its creation each instance says that
	// the provider will end it; below zero it says that it has.
	OwnLife time.Duration
	// Cloud makes this a provider whose instances do not end with its process, and
	// whose list may be late.
	Cloud bool
	// Down is the reason why the provider is not ready. It is unavailable then, unless
	// State says another word.
	Down, State string

	mu         sync.Mutex
	instances  map[string]sdk.Instance
	networks   map[string]*sdk.NetworkPolicy
	executions []sdk.ExecuteRequest
	created    []sdk.CreateRequest
}

var (
	_ instance.Provider = (*Provider)(nil)
	_ sdk.Provider      = (*Served)(nil)
	_ sdk.PauseReleaser = (*Served)(nil)
	_ sdk.Meter         = (*Served)(nil)
	_ sdk.Interrupter   = (*Served)(nil)
	_ sdk.Ports         = (*Served)(nil)

	_ sdk.Contexts = (*Served)(nil)

	_ sdk.PackageInstaller = (*Served)(nil)
)

// Label implements instance.Provider.
func (p *Provider) Label() string { return p.Name }

// Plugin implements instance.Provider.
func (p *Provider) Plugin() string { return "fake" }

// Status implements instance.Provider.
func (p *Provider) Status() instance.Status {
	if p.Down != "" {
		return instance.Status{State: cmp.Or(p.State, instance.StateUnavailable), Reason: p.Down}
	}
	return instance.Status{State: "ready", Ready: true, Details: map[string]string{"pool": "3"}}
}

// Provider implements instance.Provider.
func (p *Provider) Provider(ctx context.Context) (sdk.Provider, error) {
	if p.OnWait != nil {
		if err := p.OnWait(ctx); err != nil {
			return nil, err
		}
	}
	if p.Down != "" {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "provider %q: %s", p.Name, p.Down)
	}
	return &Served{p}, nil
}

// Description implements instance.Provider.
func (p *Provider) Description() sdk.Description {
	d := sdk.Description{
		Name:      "fake",
		Version:   "1.2.3",
		Summary:   "Runs nothing.",
		Languages: []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash},
		Templates: []sdk.Template{
			{Name: "python", Description: "Python 3", Languages: []sdk.Language{sdk.Python, sdk.Bash}},
			{Name: "nodejs", Description: "Node", Languages: []sdk.Language{sdk.JavaScript}},
		},
	}
	d.Ephemeral = !p.Cloud
	d.Capabilities = slices.Clone(p.Capabilities)
	if p.OnPause != nil {
		d.Capabilities = append(d.Capabilities, sdk.CapabilityPause)
		if p.Releases {
			d.Capabilities = append(d.Capabilities, sdk.CapabilityPauseReleases)
		}
	}
	if p.OnMeasure != nil {
		d.Capabilities = append(d.Capabilities, sdk.CapabilityMetrics)
	}
	if p.OnInterrupt != nil {
		d.Capabilities = append(d.Capabilities, sdk.CapabilityInterrupt)
	}
	if p.OnDialPort != nil {
		d.Capabilities = append(d.Capabilities, sdk.CapabilityPorts)
	}
	if p.OnListContexts != nil {
		d.Capabilities = append(d.Capabilities, sdk.CapabilityContexts)
	}
	if p.Snapshots != nil {
		d.Capabilities = append(d.Capabilities, sdk.CapabilitySnapshots)
	}
	if p.OnInstall != nil {
		d.Capabilities = append(d.Capabilities, sdk.CapabilityPackages)
	}
	return d
}

// Live returns the IDs of the instances that exist, sorted.
func (p *Provider) Live() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.instances))
}

// Forget loses all instances, as a plugin does that was killed.
func (p *Provider) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances = nil
}

// Adopt adds an instance that nobody asked for.
func (p *Provider) Adopt(i sdk.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(i)
}

// Executions returns the requests that arrived, in order.
func (p *Provider) Executions() []sdk.ExecuteRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.executions)
}

// Created returns the requests for instances that arrived, in order.
func (p *Provider) Created() []sdk.CreateRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.created)
}

func (p *Provider) add(i sdk.Instance) {
	if p.instances == nil {
		p.instances = map[string]sdk.Instance{}
	}
	p.instances[i.ID] = i
}

// Served is the provider's other face: the one that a plugin would serve.
type Served struct{ p *Provider }

// Describe implements sdk.Provider.
func (s *Served) Describe() sdk.Description { return s.p.Description() }

// Configure implements sdk.Provider.
func (s *Served) Configure(context.Context, sdk.ConfigureRequest) error { return nil }

// Health implements sdk.Provider.
func (s *Served) Health(context.Context) (sdk.Health, error) {
	return sdk.Health{Healthy: s.p.Down == "", Reason: s.p.Down}, nil
}

// Create implements sdk.Provider.
func (s *Served) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	s.p.mu.Lock()
	s.p.created = append(s.p.created, req)
	s.p.mu.Unlock()
	if s.p.OnCreate != nil {
		if err := s.p.OnCreate(ctx, req); err != nil {
			return sdk.Instance{}, err
		}
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	i := sdk.Instance{
		ID:        cmp.Or(s.p.SameID, "fake-"+req.Labels[sdk.LabelInstance]),
		Template:  req.Template,
		Labels:    req.Labels,
		Metadata:  map[string]string{"region": "here"},
		CreatedAt: time.Now(),
	}
	if s.p.OwnLife != 0 {
		i.ExpiresAt = i.CreatedAt.Add(s.p.OwnLife)
	}
	s.p.add(i)
	if _, there := s.p.networks[i.ID]; !there { // an instance that there is keeps its own
		s.p.govern(i.ID, req.Network)
	}
	return i, nil
}

// Execute implements sdk.Provider.
func (s *Served) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	s.p.mu.Lock()
	s.p.executions = append(s.p.executions, req)
	_, known := s.p.instances[req.InstanceID]
	s.p.mu.Unlock()
	if !known {
		return sdk.ExecuteResult{}, &sdk.Error{Code: sdk.CodeNotFound, Message: "no such instance", NoEffect: true}
	}
	if s.p.OnExecute != nil {
		return s.p.OnExecute(ctx, req, out)
	}
	return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Duration: time.Millisecond}, nil
}

// Pause implements sdk.Pauser.
func (s *Served) Pause(ctx context.Context, id string) error { return s.p.OnPause(ctx, id, true) }

// PauseReleasing implements sdk.PauseReleaser.
func (s *Served) PauseReleasing(ctx context.Context, id string) (bool, error) {
	return s.p.Releases, s.p.OnPause(ctx, id, true)
}

// Resume implements sdk.Pauser.
func (s *Served) Resume(ctx context.Context, id string) error { return s.p.OnPause(ctx, id, false) }

// InstanceMetrics implements sdk.Meter.
func (s *Served) InstanceMetrics(ctx context.Context, id string) (sdk.InstanceMetrics, error) {
	return s.p.OnMeasure(ctx, id)
}

// DialPort implements sdk.Ports.
func (s *Served) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	return s.p.OnDialPort(ctx, id, port)
}

// CheckPackages implements sdk.PackageInstaller.
func (s *Served) CheckPackages(ctx context.Context, language sdk.Language, requirements []string) error {
	if s.p.OnCheckPackages == nil {
		return nil
	}
	return s.p.OnCheckPackages(ctx, language, requirements)
}

// InstallPackages implements sdk.PackageInstaller.
func (s *Served) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	return s.p.OnInstall(ctx, req, out)
}

// ListContexts implements sdk.Contexts.
func (s *Served) ListContexts(ctx context.Context, instanceID string) ([]sdk.CodeContext, error) {
	return s.p.OnListContexts(ctx, instanceID)
}

// CreateContext implements sdk.Contexts.
func (s *Served) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	if s.p.OnCreateContext != nil {
		return s.p.OnCreateContext(ctx, req)
	}
	return sdk.CodeContext{}, sdk.Errorf(sdk.CodeQuotaExceeded, "there are too many contexts")
}

// RestartContext implements sdk.Contexts.
func (s *Served) RestartContext(context.Context, string, string) error { return nil }

// DeleteContext implements sdk.Contexts.
func (s *Served) DeleteContext(context.Context, string, string) error { return nil }

// Interrupt implements sdk.Interrupter.
func (s *Served) Interrupt(ctx context.Context, instanceID, executionID string) error {
	return s.p.OnInterrupt(ctx, instanceID, executionID)
}

// Destroy implements sdk.Provider.
func (s *Served) Destroy(ctx context.Context, id string) error {
	if s.p.OnDestroy != nil {
		if err := s.p.OnDestroy(ctx, id); err != nil {
			return err
		}
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	delete(s.p.instances, id)
	return nil
}

// List implements sdk.Provider.
func (s *Served) List(ctx context.Context) ([]sdk.Instance, error) {
	if s.p.OnList != nil {
		if err := s.p.OnList(ctx); err != nil {
			return nil, err
		}
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return slices.Collect(maps.Values(s.p.instances)), nil
}

// Catalog is a fixed list of providers; the first is the active one.
type Catalog []instance.Provider

// Providers implements instance.Catalog.
func (c Catalog) Providers() []instance.Provider { return c }

// Offer implements instance.Catalog.
func (c Catalog) Offer(who tenant.Tenant) instance.Offer {
	offer := instance.Offer{Providers: c, Tenant: who}
	if len(c) > 0 {
		offer.Active = c[0].Label()
	}
	return offer
}

// Limits are generous, except for the output.
func Limits() instance.Limits {
	return instance.Limits{
		Output:         1 << 10,
		Artifacts:      sdk.ArtifactLimits{MaxCount: 20, MaxBytes: 4 << 20, MaxTotalBytes: 16 << 20},
		DefaultTimeout: 30 * time.Second,
		MaxTimeout:     10 * time.Minute,
		CreateTimeout:  time.Minute,
		DefaultTTL:     5 * time.Minute,
		MaxLifetime:    24 * time.Hour,
		MaxIdle:        24 * time.Hour,
	}
}
