package local

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
)

// Provider implements sdk.Provider and every capability.
type Provider struct {
	*localfiles.Files
	*localcommands.Commands

	logger   hclog.Logger
	brokerID string
	dir      instancesDir // with the back end
	stateDir string
	settings struct {
		Token        string        `config:"token"`
		Backend      string        `config:"backend"`
		Mode         string        `config:"mode"`
		Prefix       string        `config:"prefix"`
		MaxInstances int64         `config:"max_instances"`
		MaxAge       time.Duration `config:"max_age"`
		Packages     string        `config:"packages"`
	}

	gateway *gateway.Gateway

	creating  sync.Mutex // one creation at a time, so that a key is used once
	mu        sync.Mutex
	instances map[string]*instance
	closed    bool // no instance is added any more
	volumes   map[string]volume
	requests  float64
}

var (
	_ sdk.Provider = (*Provider)(nil)
	_ sdk.Closer   = (*Provider)(nil)
)

// New is the serve.Factory of this provider.
func New(logger hclog.Logger) sdk.Provider {
	p := &Provider{logger: logger, instances: map[string]*instance{}, volumes: map[string]volume{}, gateway: gateway.New(gateway.Options{})}
	p.Files, p.Commands = p.files(), p.commands()
	return p
}

// Describe implements sdk.Provider.
func (p *Provider) Describe() sdk.Description {
	return sdk.Description{
		Name: "local", Version: "1.0.0", Summary: "Processes of this machine, which isolate nothing.",
		Languages:    []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash},
		Templates:    []sdk.Template{{Name: "any", Description: "A directory", Languages: []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash}}},
		Capabilities: []sdk.Capability{sdk.CapabilityArtifacts},
		Schema: sdk.Schema{
			{Name: "token", Type: sdk.TypeString, Required: true, Secret: true, Description: "A secret, to see whether it is kept."},
			{Name: "backend", Type: sdk.TypeString, Required: true, Pattern: "/.+", Description: "A file that stands for the back end: without it there is none."},
			{Name: "mode", Type: sdk.TypeString, Default: "plain", Options: []string{"plain", "other"}, Description: "One of two words."},
			{Name: "prefix", Type: sdk.TypeString, Default: "i", Min: sdk.Bound(1), Max: sdk.Bound(8), Pattern: "[a-z]+", Description: "The beginning of all IDs."},
			{Name: "max_instances", Type: sdk.TypeInteger, Default: 100, Min: sdk.Bound(1), Max: sdk.Bound(1000), Description: "Instances at once."},
			{Name: "max_age", Type: sdk.TypeDuration, Default: "24h", Min: sdk.Bound(1), Description: "The longest life of an instance."},
			{Name: "packages", Type: sdk.TypeString, Default: "", Description: "A directory of modules that can be installed."},
		},
	}
}

// Configure implements sdk.Provider.
func (p *Provider) Configure(_ context.Context, req sdk.ConfigureRequest) error {
	if err := req.Settings.Decode(&p.settings); err != nil {
		return err
	}
	if err := p.reach(); err != nil {
		return err
	}
	p.brokerID, p.stateDir = req.BrokerID, req.StateDir
	p.dir = instancesDir(filepath.Join(filepath.Dir(p.settings.Backend), "instances"))
	if err := os.MkdirAll(string(p.dir), 0o700); err != nil {
		return sdk.Errorf(sdk.CodeInvalidConfig, "make the directory of the instances: %w", errors.Unwrap(err))
	}
	p.logger.Info("configured", "mode", p.settings.Mode)
	return p.reclaim()
}

// reach fails when the back end is gone.
func (p *Provider) reach() error {
	if _, err := os.Stat(p.settings.Backend); err != nil {
		gone := sdk.Errorf(sdk.CodeConnectionFailed, "the back end is not there")
		gone.NoEffect = true
		return gone
	}
	return nil
}

// Health implements sdk.Provider.
func (p *Provider) Health(context.Context) (sdk.Health, error) {
	if err := p.reach(); err != nil {
		return sdk.Health{Reason: "the back end is not there: start it"}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return sdk.Health{Healthy: true, Details: map[string]string{"mode": p.settings.Mode}, Metrics: []sdk.Metric{
		{Name: "requests_total", Help: "Requests.", Kind: sdk.MetricCounter, Value: p.requests},
		{Name: "instances", Help: "Instances.", Kind: sdk.MetricGauge, Value: float64(len(p.instances))},
	}}, nil
}

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if req.Template != "any" && req.Image == "" {
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "must be any")
	}
	if err := errors.Join(p.reach(), sdk.LeaseOf(ctx).Held()); err != nil {
		return sdk.Instance{}, err
	}
	p.creating.Lock()
	defer p.creating.Unlock()
	if made := p.byKey(req.IdempotencyKey); made != nil {
		return made.describe(), nil
	}
	i := &instance{record: record{
		Instance: sdk.Instance{
			ID: p.settings.Prefix + newID(), Template: req.Template, Labels: maps.Clone(req.Labels), CreatedAt: time.Now(),
			Metadata: map[string]string{"mode": p.settings.Mode},
		},
		Env: maps.Clone(req.Env), Key: req.IdempotencyKey, BrokerID: p.brokerID,
	}}
	if req.Image != "" {
		if err := p.fromTemplate(i, req.Image); err != nil {
			return sdk.Instance{}, err
		}
	}
	life := p.settings.MaxAge
	if req.TTL > 0 {
		life = min(life, req.TTL)
	}
	i.ExpiresAt = i.CreatedAt.Add(life)
	var content []byte
	if req.Snapshot != nil {
		var err error
		if content, err = p.opened(req.Snapshot); err != nil {
			return sdk.Instance{}, err
		}
	}
	if err := p.add(i, content); err != nil {
		return sdk.Instance{}, err
	}
	if err := p.attach(i, req.Volumes); err != nil {
		return sdk.Instance{}, errors.Join(err, p.Destroy(ctx, i.ID))
	}
	if req.Network != nil {
		if err := i.setNetwork(*req.Network); err != nil {
			return sdk.Instance{}, errors.Join(err, p.Destroy(ctx, i.ID))
		}
	}
	return i.describe(), nil
}

// Destroy implements sdk.Provider.
func (p *Provider) Destroy(ctx context.Context, instanceID string) error {
	if err := sdk.LeaseOf(ctx).Held(); err != nil {
		return err
	}
	i := held.take(p, instanceID)
	if i == nil {
		return nil
	}
	return errors.Join(p.EndCommands(ctx, instanceID), i.end())
}

// List implements sdk.Provider.
func (p *Provider) List(context.Context) ([]sdk.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []sdk.Instance
	for _, i := range p.instances {
		list = append(list, i.describe())
	}
	return list, nil
}

// Close implements sdk.Closer: the processes end, the instances stay.
func (p *Provider) Close(ctx context.Context) error {
	err := p.EndAllCommands(ctx)
	p.mu.Lock()
	p.closed = true
	ids := slices.Collect(maps.Keys(p.instances))
	p.mu.Unlock()
	for _, id := range ids {
		if i := held.take(p, id); i != nil {
			i.stop()
		}
	}
	return err
}
