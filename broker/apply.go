package broker

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/listen"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/reload"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/templates"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing"
	"github.com/sandbox-broker/sandbox-broker/broker/webhook"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// settings are what the parts of the broker are handed of a configuration. The rest is
// read from the generation in force, whenever it is needed.
type settings struct {
	instances   instance.Limits
	snapshots   snapshot.Limits
	runs        executions.Limits
	quotas      quota.Rules
	connections admission.Bounds
	requests    api.Bounds
	previews    *api.PreviewHosts // nil for none
	doors       map[string]frontdoor.Settings
	tls         *api.TLS      // nil for none
	peers       *config.Peers // nil for none
	audit       audit.Detail
	sinks       config.Audit
	tracing     tracing.Settings
	disk        time.Duration
	logLevel    hclog.Level
}

// settingsOf are what a configuration says, with the providers that have started.
func settingsOf(cfg *config.Config, providers []*generation.Revision) settings {
	l, c, a := cfg.Limits, cfg.Connections, cfg.Audit
	s := settings{
		instances: instance.Limits{
			Output: l.Output,
			Artifacts: sdk.ArtifactLimits{
				MaxCount: int(l.ArtifactCount), MaxBytes: l.ArtifactBytes, MaxTotalBytes: l.ArtifactTotal,
			},
			DefaultTimeout: l.DefaultTimeout,
			MaxTimeout:     l.MaxTimeout,
			CreateTimeout:  l.CreateTimeout,
			DefaultTTL:     l.DefaultTTL,
			MaxLifetime:    l.MaxLifetime,
			MaxIdle:        l.MaxIdle,
			MaxWait:        l.MaxWait,
			DiskTimeout:    l.DiskTimeout,
		},
		snapshots: snapshot.Limits{
			DefaultTTL: l.SnapshotTTL, MaxTTL: l.MaxSnapshotTTL, Timeout: l.CreateTimeout, DiskTimeout: l.DiskTimeout,
		},
		runs:        executions.Limits{LogBytes: l.ExecutionLogBytes, AllBytes: l.ExecutionLogsBytes, Time: l.ExecutionLogTime, DiskTimeout: l.DiskTimeout},
		quotas:      quotaRules(cfg, providers),
		connections: listen.Bounds(c),
		requests: api.Bounds{
			MaxBody: l.RequestBody, Bodies: c.BodyBytes, BodiesPerTenant: c.BodyBytesPerTenant,
			RequestTimeout: 2*l.MaxTimeout + 2*l.CreateTimeout + l.MaxWait + 4*l.DiskTimeout + time.Minute, DiskTimeout: l.DiskTimeout,
		},
		peers:    cfg.Peers,
		audit:    audit.Detail{IncludeCode: a.IncludeCode, MaxBytes: a.MaxMB * 1e6, KeepDays: int(a.KeepDays), Patience: l.DiskTimeout},
		sinks:    a,
		tracing:  tracing.Settings(cfg.Tracing),
		disk:     l.DiskTimeout,
		logLevel: hclog.LevelFromString(cfg.Log.Level),
		doors:    map[string]frontdoor.Settings{},
	}
	for _, door := range cfg.FrontDoors {
		s.doors[door.Kind] = frontdoor.New(door)
	}
	if p := cfg.Previews; p.Domain != "" {
		s.previews = &api.PreviewHosts{Scheme: p.Scheme, Domain: p.Domain, Port: p.Port}
	}
	if t := cfg.TLS; t != nil {
		s.tls = &api.TLS{Certificate: t.Certificate, ClientCAs: t.ClientCAs}
	}
	return s
}

// hand gives the parts of the broker their settings.
func (b *broker) hand(s settings) {
	b.quotas.SetRules(s.quotas)
	b.instances.SetLimits(s.instances)
	b.snapshots.SetLimits(s.snapshots)
	b.runs.SetLimits(s.runs)
	b.gate.SetBounds(s.connections)
	b.server.SetBounds(s.requests)
	b.server.SetPreviewHosts(s.previews)
	b.server.SetFrontDoors(s.doors)
	b.server.SetTLS(s.tls)
	b.identify(s.peers)
	b.audit.Change(s.audit)
	b.sinks.Apply(s.sinks)
	b.tracing.Apply(s.tracing)
	b.store.SetPatience(s.disk)
	b.logger.SetLevel(s.logLevel)
}

var _ reload.Broker = (*broker)(nil)

// Apply implements reload.Broker.
func (b *broker) Apply(from, next *generation.Generation, listeners reload.Listeners) {
	stays := func(name string) bool { return next.Has(name) && from.Has(name) }
	b.forgetAnswers(stays)
	// A new tenant of an old name shall not find the volumes of that one, and keep its own.
	b.volumes.ReleaseTenants(b.life, stays)
	replaced := b.catalog.Set(next)
	b.followTemplates(next)
	b.instances.ReleaseTenants(next.Has)
	b.snapshots.ReleaseTenants(next.Has)
	b.runs.Forget(stays)
	b.webhooks.Forget(stays)
	b.volumes.ReleaseTenants(b.life, next.Has)
	b.quotas.Forget(next.Has)
	b.hand(settingsOf(next.Config, next.Current))
	b.instances.InForce()
	if listeners.API != nil {
		b.api.MoveTo(listeners.API)
		b.logger.Info("the API has moved", "address", listeners.API.Addr().String())
	}
	for kind, endpoint := range b.doors {
		if from.Config.FrontDoor(kind).Listen != next.Config.FrontDoor(kind).Listen {
			b.openDoor(kind, endpoint, listeners.FrontDoors[kind])
		}
	}
	if from.Config.PeersListen() != next.Config.PeersListen() {
		b.openPeers(listeners.Peers)
	}
	if !from.Config.Peers.Equal(next.Config.Peers) {
		b.tellPeers(next.Config.Peers)
	}
	if from.Config.Metrics.Listen != next.Config.Metrics.Listen {
		b.showMetrics(listeners.Metrics)
	}
	for _, old := range replaced {
		b.tasks.Go("drain "+old.Label(), func() { b.host.Drain(old, next.Revision(old.Label())) })
	}
}

// followTemplates has the templates of a generation built.
func (b *broker) followTemplates(g *generation.Generation) {
	providers := make([]templates.Provider, 0, len(g.Current))
	for _, r := range g.Current {
		providers = append(providers, r)
	}
	b.templates.Follow(g.Config.Templates, providers)
}

// webhookRules are what a tenant may have posted where, by the configuration in force.
func (b *broker) webhookRules(tenant string) (webhook.Rules, bool) {
	g := b.catalog.InForce()
	if g.Config == nil {
		return webhook.Rules{}, false
	}
	for _, t := range g.Config.Tenants {
		if w := t.Webhooks; t.Name == tenant && w.Secret != "" {
			return webhook.Rules{Allow: w.Allow, AllowPrivate: w.AllowPrivate, Secret: w.Secret}, true
		}
	}
	return webhook.Rules{}, false
}

// forgetTenantsTimeout bounds the removal of what tenants have left in the state file.
const forgetTenantsTimeout = 10 * time.Second

// forgetAnswers removes the kept answers of tenants that are not known. It is called when
// a tenant is removed, and once more before one of its name is let in: a request of the
// earlier one may have been on its way.
func (b *broker) forgetAnswers(known func(tenant string) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), forgetTenantsTimeout)
	defer cancel()
	if err := b.answers.Forget(ctx, known); err != nil {
		b.logger.Error("the answers that were kept for a removed tenant could not be removed", "error", err)
	}
}

// quotaRules are what a configuration says, with the providers that have started.
func quotaRules(cfg *config.Config, providers []*generation.Revision) quota.Rules {
	rules := quota.Rules{
		Tenants:    map[string]quota.Limits{},
		Costs:      map[string]quota.Money{},
		Sizes:      map[string]quota.Size{},
		MaxWaiting: int(cfg.Limits.MaxWaiting),
	}
	for _, t := range cfg.Tenants {
		rules.Tenants[t.Name] = quotaLimits(t.Quota)
	}
	for _, p := range cfg.Providers {
		rules.Costs[p.Label] = quota.MoneyOf(p.CostPerSecond)
	}
	for _, r := range providers {
		rules.Sizes[r.Label()] = instanceSize(r.Settings())
	}
	return rules
}

func quotaLimits(q config.Quota) quota.Limits {
	return quota.Limits{
		Instances: q.MaxInstances, Paused: q.MaxPaused, Concurrent: q.MaxConcurrent,
		RequestsPerSecond: q.RequestsPerSecond,
		ExecutionsPerDay:  q.ExecutionsPerDay, ExecutionTimePerDay: q.ExecutionTimePerDay,
		Size:        quota.Size{MemoryMB: q.MaxMemoryMB, CPUs: q.MaxCPUs},
		MoneyPerDay: quota.MoneyOf(q.MoneyPerDay), MoneyPerMonth: quota.MoneyOf(q.MoneyPerMonth),
		Snapshots: q.MaxSnapshots, SnapshotBytes: q.MaxSnapshotBytes,
		Volumes: q.MaxVolumes, VolumeBytes: q.MaxVolumeBytes,
	}
}

// instanceSize is that of a provider's instances, where its settings say it in the
// words that our own providers use.
func instanceSize(settings sdk.Settings) quota.Size {
	var size quota.Size
	size.MemoryMB, _ = settings["memory_mb"].(int64)
	switch cpus := settings["cpus"].(type) {
	case int64:
		size.CPUs = float64(cpus)
	case float64:
		size.CPUs = cpus
	}
	return size
}
