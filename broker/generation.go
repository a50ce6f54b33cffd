package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// generation is one accepted version of the configuration: what every request
// goes by. Nobody changes it; the next one takes its place as a whole.
type generation struct {
	// number counts from 1.
	number   int
	accepted time.Time
	cfg      *config.Config
	tenants  *tenant.Directory
	// current revision of each provider, in the order of the configuration, and
	// the same as package instance wants them.
	current []*revision
	offered []instance.Provider
	// costs of a second of an instance's life, by provider.
	costs map[string]float64
}

// newGeneration comes after the one before, nil for the first.
func newGeneration(number int, cfg *config.Config, current []*revision, before *generation) *generation {
	g := &generation{number: number, accepted: time.Now(), cfg: cfg, current: current, costs: map[string]float64{}}
	for _, p := range cfg.Providers {
		g.costs[p.Label] = p.CostPerSecond
	}
	for _, r := range current {
		g.offered = append(g.offered, r)
	}
	var all []tenant.Credentials
	for _, t := range cfg.Tenants {
		since := number
		if before != nil {
			if same, ok := before.tenants.Tenant(t.Name); ok {
				since = same.Since
			}
		}
		all = append(all, tenant.Credentials{
			Tenant:      tenant.Tenant{Name: t.Name, Providers: t.Providers, Since: since},
			TokenSHA256: t.TokenSHA256,
		})
	}
	g.tenants = tenant.NewDirectory(all)
	return g
}

// has reports whether there is a tenant of that name.
func (g *generation) has(name string) bool {
	_, ok := g.tenants.Tenant(name)
	return ok
}

// revision returns that of a provider, nil if the generation has none.
func (g *generation) revision(label string) *revision {
	i := slices.IndexFunc(g.current, func(r *revision) bool { return r.Label() == label })
	if i < 0 {
		return nil
	}
	return g.current[i]
}

func instanceLimits(l config.Limits) instance.Limits {
	return instance.Limits{
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
	}
}

func requestBounds(cfg *config.Config) api.Bounds {
	l, c := cfg.Limits, cfg.Connections
	return api.Bounds{MaxBody: l.RequestBody, Bodies: c.BodyBytes, BodiesPerTenant: c.BodyBytesPerTenant, RequestTimeout: 2*l.MaxTimeout + 2*l.CreateTimeout + l.MaxWait + 4*l.DiskTimeout + time.Minute, DiskTimeout: l.DiskTimeout}
}

func previewHosts(p config.Previews) *api.PreviewHosts {
	if p.Domain == "" {
		return nil
	}
	return &api.PreviewHosts{Scheme: p.Scheme, Domain: p.Domain, Port: p.Port}
}

func serverTLS(t *config.TLS) *api.TLS {
	if t == nil {
		return nil
	}
	return &api.TLS{Certificate: t.Certificate, ClientCAs: t.ClientCAs}
}

// needsRestart names the settings that differ and that a running broker cannot
// change.
func needsRestart(from, to *config.Config) config.Diagnostics {
	var diags config.Diagnostics
	for _, s := range []struct {
		name    string
		differs bool
	}{
		{"state", from.StateDir != to.StateDir},
		{"audit.dir", from.Audit.Dir != to.Audit.Dir},
		{"log.format", from.Log.Format != to.Log.Format},
	} {
		if s.differs {
			diags = append(diags, config.Diagnostic{
				Severity: config.SeverityError, Summary: "Needs a restart", File: mainFile(to),
				Detail: fmt.Sprintf("%s cannot change while the broker runs. Change it back, or stop the broker and start it again.", s.name),
			})
		}
	}
	return diags
}
