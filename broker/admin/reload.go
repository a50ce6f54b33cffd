package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// Reload is one attempt to bring a configuration in force, and what became of it.
type Reload struct {
	// At is when it was over, Took how long it took.
	At   time.Time
	Took time.Duration
	// Trigger is what made the broker look.
	Trigger Trigger
	// Operation says what an administrator changed, such as `provider "e2b"`; ""
	// where the files were read as they are.
	Operation string
	// Generation that was in force afterwards; Applied says whether it is new.
	Generation int
	Applied    bool
	// Beside says that the files have changes of providers too that are not in force,
	// because these are being started or were refused.
	Beside bool
	// DryRun says that nothing was done: Applied is what would be.
	DryRun bool
	// Revision is config.Config's.
	Revision string
	Change   Change
	// Diagnostics say why not, and hold warnings.
	Diagnostics config.Diagnostics
	// Restorable says that the files of the generation which it made are kept.
	Restorable bool
}

// Trigger is what made the broker look for a new configuration.
type Trigger string

// The triggers.
const (
	TriggerStart  Trigger = "start"
	TriggerFile   Trigger = "file"   // a file has changed
	TriggerSignal Trigger = "signal" // SIGHUP
	TriggerAPI    Trigger = "api"    // an administrator
	TriggerPlugin Trigger = "plugin" // the executable of a plugin was replaced
	TriggerPeers  Trigger = "peers"  // other brokers, with which a file is shared
)

// Result says in a word what became of it: applied, refused or unchanged, and
// would_apply of a dry run in place of applied.
func (r Reload) Result() string {
	switch {
	case r.Diagnostics.HasErrors():
		return "refused"
	case r.Applied && r.DryRun:
		return "would_apply"
	case r.Applied:
		return "applied"
	default:
		return "unchanged"
	}
}

// Change is what differs between two generations.
type Change struct {
	Providers []ProviderChange
	// Tenants by what happens to them.
	TenantsAdded, TenantsRemoved, TenantsChanged []string
	// Settings outside of providers and tenants, such as "limits" or "listen".
	Settings []string
}

// ProviderChange says what happens to a provider.
type ProviderChange struct {
	Provider string
	Action   ProviderAction
	// Draining counts the instances that live on in the process that ends.
	Draining int
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
