package broker

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// Change is what differs between two generations.
type Change struct {
	Providers []ProviderChange `json:"providers"`
	// Tenants by what happens to them.
	TenantsAdded   []string `json:"tenants_added"`
	TenantsRemoved []string `json:"tenants_removed"`
	TenantsChanged []string `json:"tenants_changed"`
	// Settings outside of providers and tenants, such as "limits" or "listen".
	Settings []string `json:"settings"`
}

// ProviderChange says what happens to a provider.
type ProviderChange struct {
	Provider string         `json:"provider"`
	Action   ProviderAction `json:"action"`
}

// ProviderAction is what a reload does to a provider.
type ProviderAction string

// The actions. A provider that restarts or stops drains: its instances live on to
// their end.
const (
	ProviderStarts   ProviderAction = "start"
	ProviderRestarts ProviderAction = "restart"
	ProviderStops    ProviderAction = "stop"
)

// Empty reports whether nothing differs.
func (c Change) Empty() bool {
	return len(c.Providers)+len(c.TenantsAdded)+len(c.TenantsRemoved)+len(c.TenantsChanged)+len(c.Settings) == 0
}

// compare finds all but what happens to providers.
func compare(from, to *config.Config) Change {
	var c Change
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
		{"limits", from.Limits != to.Limits},
		{"admin", !reflect.DeepEqual(from.Admin, to.Admin)},
		{"providers", from.ActiveProvider != to.ActiveProvider},
	} {
		if s.differs {
			c.Settings = append(c.Settings, s.name)
		}
	}
	return c
}

// String says it in one line, for the log.
func (c Change) String() string {
	var parts []string
	for _, p := range c.Providers {
		parts = append(parts, fmt.Sprintf("provider %s: %s", p.Provider, p.Action))
	}
	for _, group := range []struct {
		what  string
		names []string
	}{
		{"tenants added", c.TenantsAdded}, {"tenants removed", c.TenantsRemoved}, {"tenants changed", c.TenantsChanged}, {"settings", c.Settings},
	} {
		if len(group.names) > 0 {
			parts = append(parts, group.what+": "+strings.Join(group.names, " "))
		}
	}
	return strings.Join(parts, "; ")
}
