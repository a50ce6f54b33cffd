package reload

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// compare finds all that differs but what happens to providers.
func compare(from, to *config.Config) admin.Change {
	var c admin.Change
	before := map[string]config.Tenant{}
	for _, t := range from.Tenants {
		before[t.Name] = t
	}
	for _, t := range to.Tenants {
		old, there := before[t.Name]
		delete(before, t.Name)
		switch {
		case !there:
			c.TenantsAdded = append(c.TenantsAdded, t.Name)
		case !reflect.DeepEqual(old, t):
			c.TenantsChanged = append(c.TenantsChanged, t.Name)
		}
	}
	for _, t := range from.Tenants {
		if _, gone := before[t.Name]; gone {
			c.TenantsRemoved = append(c.TenantsRemoved, t.Name)
		}
	}
	for _, s := range []struct {
		name    string
		differs bool
	}{
		{"listen", from.Listen != to.Listen},
		{"plugin_dir", from.PluginDir != to.PluginDir},
		{"log", from.Log != to.Log},
		{"metrics", from.Metrics != to.Metrics},
		{"tracing", !reflect.DeepEqual(from.Tracing, to.Tracing)},
		{"tls", !from.TLS.Equal(to.TLS)},
		{"peers", !from.Peers.Equal(to.Peers)},
		{"limits", from.Limits != to.Limits},
		{"previews", from.Previews != to.Previews},
		{"connections", !reflect.DeepEqual(from.Connections, to.Connections)},
		{"template", !reflect.DeepEqual(from.Templates, to.Templates)},
		{"front_door", !reflect.DeepEqual(from.FrontDoors, to.FrontDoors)},
		{"quota", from.Quota != to.Quota},
		{"cost_per_second", !maps.Equal(costs(from), costs(to))},
		{"audit", from.Audit != to.Audit},
		{"admin", !reflect.DeepEqual(from.Admin, to.Admin)},
		{"providers", from.ActiveProvider != to.ActiveProvider || !slices.Equal(from.FallbackProviders, to.FallbackProviders) ||
			from.RoutingPolicy != to.RoutingPolicy || from.OnStop != to.OnStop || from.FailOver != to.FailOver},
	} {
		if s.differs {
			c.Settings = append(c.Settings, s.name)
		}
	}
	return c
}

// costs of the providers that cost anything.
func costs(cfg *config.Config) map[string]float64 {
	list := map[string]float64{}
	for _, p := range cfg.Providers {
		if p.CostPerSecond > 0 {
			list[p.Label] = p.CostPerSecond
		}
	}
	return list
}

// needsRestart names the settings that differ and that a running broker cannot
// change.
func needsRestart(from, to *config.Config) config.Diagnostics {
	var diags config.Diagnostics
	for _, s := range []struct {
		name    string
		differs bool
	}{
		{"state", from.Database != to.Database || from.Database == "" && from.StateDir != to.StateDir},
		{"data", from.Database != "" && to.Database != "" && from.StateDir != to.StateDir},
		{"audit.dir", from.Audit.Dir != to.Audit.Dir},
		{"peers.shared_file", sharedFile(from) != sharedFile(to)},
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

// sharedFile is the file that all brokers share; "" for none.
func sharedFile(cfg *config.Config) string {
	path, _ := cfg.Shared()
	return path
}
